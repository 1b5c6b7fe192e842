import json
from servers.shop import list_orders

result = await list_orders(status="pending")
payload = json.loads(result.content[0].text)
print(len(payload))
