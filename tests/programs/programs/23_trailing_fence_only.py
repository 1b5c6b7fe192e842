from servers.shop import get_policy

policy = await get_policy("returns")
print(policy.splitlines()[0])
```
