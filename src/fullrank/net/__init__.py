"""What speaks gRPC: codec, channels, servers, access, errors, clients."""
