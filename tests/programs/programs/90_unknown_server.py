from servers.salesforce import query
from servers.shop import create_order

accounts = await query("SELECT Id FROM Account")
order = await create_order("Ada Lovelace", [{"sku": "BK-01"}])
print(order["id"], len(accounts))
