from pprint import pprint
from servers.shop import get_order

order = await get_order(order_id="O-1005")
pprint(order, width=60)
