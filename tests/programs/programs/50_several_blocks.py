from servers.shop import order_history
from servers.crm_tools import get_avatar

events = await order_history(order_id="O-1004")
for i, event in enumerate(events, 1):
    print(f"{i}. {event}")

caption, picture = await get_avatar(contactId="c-2")
print(caption, picture.mime_type)
