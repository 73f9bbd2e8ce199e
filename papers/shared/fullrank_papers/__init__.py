"""What the papers share: cells, rules of claims, pages, pictures, and the command."""
