"""Methods that coded training is measured against and whose updates are not units of a code."""
