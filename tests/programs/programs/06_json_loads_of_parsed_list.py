```python
import json
from servers.shop import list_orders

result = await list_orders("shipped")
orders = json.loads(result)
total = sum(o["total"] for o in orders)
print(json.dumps({"count": len(orders), "total": round(total, 2)}))
```
