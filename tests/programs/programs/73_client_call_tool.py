```python
result = await client.call_tool("list_orders", arguments={"status": "shipped"})
for order in result:
    print(order["id"], order["total"])
```
