"""The eager tensor: memory, views, aliasing, autograd's nodes, modes."""
