```python
from servers.shop import get_order
order = await get_order("O-1006")
```

```python
print(order["customer"]["name"])
```
