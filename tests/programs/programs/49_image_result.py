import os
from servers.shop import shipping_label

label = await shipping_label(order_id="O-1001")
print(label.mime_type, label.size)
print(os.path.exists(label.path), "workspace" in str(label.path))

with open(label.path, "rb") as f:
    print(f.read(8) == b"\x89PNG\r\n\x1a\n")
