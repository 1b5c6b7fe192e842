```python
from servers.shop import count_orders

n = await count_orders(status="cancelled")
print(f"Cancelled orders: {n}")
