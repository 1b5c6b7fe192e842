import json
from servers.shop import get_policy

policy = json.loads(await get_policy(topic="returns"))
print(policy["days"])
