"""A `Step` to the peak it will reach: executor order, lifetimes, allocator, workspace."""
