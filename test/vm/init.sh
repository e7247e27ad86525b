#!/bin/busybox sh
# Process 1 of the guest: makes its network as /config says, serves HTTP, and runs what comes over the virtio serial port.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
for module in /modules/*.ko; do insmod "$module"; done
echo 0 >/proc/sys/net/ipv6/conf/all/accept_dad
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
echo 0 >/proc/sys/net/ipv6/conf/default/accept_ra
ip link set lo up
while read -r word value; do
  case $word in
    name) hostname "$value" && echo "$value" >/www/hostname ;;
    mtu) ip link set eth0 mtu "$value" ;;
    up) echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad; ip link set eth0 up ;;
    address) ip addr add "$value" dev eth0 ;;
    gateway) ip route add default via "$value" dev eth0 ;;
  esac
done </config
httpd -h /www -p "[::]:80"
for port in /dev/vport*p1; do break; done
# It can be opened only once.
exec 0<>"$port" >&0 2>&1
. /serve.sh
poweroff -f
