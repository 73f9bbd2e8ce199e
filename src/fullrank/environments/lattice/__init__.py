"""Teams on a lattice; every module of this package is a task."""
