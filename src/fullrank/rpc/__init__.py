"""The only library package that imports grpc: codec, channels, servers, errors, clients."""
