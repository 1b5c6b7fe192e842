import asyncio
from servers.shop import get_policy, count_orders, in_stock
from servers.crm_tools import last_activity

calls = [
    (get_policy, {"topic": "shipping"}),
    (count_orders, {"status": "pending"}),
    (in_stock, {"sku": "HM-02", "quantity": 3}),
    (last_activity, {"contactId": "c-1"}),
]

results = await asyncio.gather(*(tool(**kwargs) for tool, kwargs in calls))
for (tool, _), result in zip(calls, results):
    print(f"{tool.__name__}: {result}")
