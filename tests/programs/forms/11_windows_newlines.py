```python
from servers.shop import get_policy

text = await get_policy(topic="shipping")
print(text)
```
