// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/sandbox"
	"coelan.io/coelan/test/vm"
)

// askers is a Network of red's Router with a Port for a machine that knows nothing of its
// addresses: IPv4 it asks for, IPv6 it makes of its MAC and the prefix that it is told.
const askers = `
apiVersion: coelan.io/v1alpha1
kind: Network
metadata: {name: askers}
spec:
  router: red
  namespaceSelector: {matchLabels: {tenant: red}}
  subnets: [{cidr: 10.52.0.0/24}, {cidr: "fd00:52::/64"}]
  dns: {nameservers: [192.0.2.53], searches: [red.example]}
  dhcp: {leaseSeconds: 600, addressMode: Stateless}
---
apiVersion: coelan.io/v1alpha1
kind: Port
metadata: {name: asker, namespace: red}
spec: {network: askers, addresses: [10.52.0.50, "fd00:52::5054:ff:fe52:50"], mac: "52:54:00:52:00:50"}
`

// TestDHCP boots a virtual machine without addresses. What it is told it uses to talk with pods on
// both nodes, also after its node's agent was killed.
func TestDHCP(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "vnet", "askers") })
	apply(ctx, t, askers)
	port := named(&v1alpha1.Port{}, "red/asker")
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "-n", "red", "ports.coelan.io", "asker") })
	if err := wait(ctx, port, portIn(v1alpha1.PortReady)); err != nil {
		t.Fatal(err)
	}
	m := bootGuest(ctx, t, worker2, port, nil)
	if err := wait(ctx, port, portIn(v1alpha1.PortBound)); err != nil {
		t.Fatal(err)
	}
	pods := map[string]string{"red/web1": "eth0", "red/web2": "eth0"}
	t.Run("asks", func(t *testing.T) {
		makesAddress(ctx, t, m)
		asksForAddress(ctx, t, m)
		talk(ctx, t, m, port, pods)
	})
	t.Run("agent killed", func(t *testing.T) {
		if err := world.Restart(ctx, worker2, sandbox.Agent, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		asksForAddress(ctx, t, m)
		talk(ctx, t, m, port, pods)
	})
	m.Stop()
	unplug(ctx, t, worker2)
	t.Run("machine without a Port", func(t *testing.T) { asksWithoutPort(ctx, t) })
}

// strangers is a Network of red's Router for machines that name no Port, and their namespace.
const strangers = `
apiVersion: v1
kind: Namespace
metadata: {name: strangers, labels: {on: strangers}}
---
apiVersion: coelan.io/v1alpha1
kind: Network
metadata: {name: strangers}
spec:
  role: Primary
  router: red
  namespaceSelector: {matchLabels: {on: strangers}}
  subnets: [{cidr: 10.53.0.0/24}]
  dhcp: {leaseSeconds: 600}
`

// asksWithoutPort boots a virtual machine that names no Port: it gets one, and keeps it while it is
// away, until it has given its address back.
func asksWithoutPort(ctx context.Context, t *testing.T) {
	t.Cleanup(func() {
		remove(context.WithoutCancel(ctx), t, "namespace", "strangers")
		remove(context.WithoutCancel(ctx), t, "vnet", "strangers")
	})
	apply(ctx, t, strangers)
	plugAgain := func() {
		t.Helper()
		plug(ctx, t, worker2, "'strangers/?'", `'external_ids:attached-mac="52:54:00:53:00:50"'`)
	}
	plugAgain()
	port := named(&v1alpha1.Port{}, "strangers/guest-52-54-00-53-00-50")
	if err := wait(ctx, port, portIn(v1alpha1.PortBound)); err != nil {
		t.Fatal(err)
	}
	had := port.Status.Addresses
	m := bootPlugged(ctx, t, worker2, port, nil)
	asks(ctx, t, m, "ip="+had[0], "mask=24", "router=10.53.0.1", "hostname=guest-52-54-00-53-00-50", "lease=600")
	for _, key := range []string{"red/web1", "red/web2"} {
		pod := world.tenant(ctx, t, key)
		pod.run(ctx, t, "ping", "-q", "-c", "1", "-W", "2", had[0])
		for _, a := range pod.on(t, "eth0") {
			if !a.Is4() {
				continue
			}
			if out, err := m.Run(ctx, "ping -q -c 1 -W 2 "+a.String()); err != nil {
				t.Errorf("the guest to %s: %v: %s", key, err, out)
			}
		}
	}
	leased := func(p *v1alpha1.Port) error {
		if p.Status.Lease == nil {
			return errors.New("it has no lease")
		}
		return nil
	}
	if err := wait(ctx, port, leased); err != nil {
		t.Fatal(err)
	}
	m.Stop()
	unplug(ctx, t, worker2)
	if err := wait(ctx, port, portIn(v1alpha1.PortReady)); err != nil {
		t.Fatal(err)
	}
	plugAgain()
	if err := wait(ctx, port, portIn(v1alpha1.PortBound)); err != nil || port.Status.Addresses[0] != had[0] {
		t.Errorf("the machine that is back has %s, had %s: %v", port.Status.Addresses, had, err)
	}
	unplug(ctx, t, worker2)
}

// makesAddress has the machine ask for a router advertisement, and waits for what its kernel makes
// of it.
func makesAddress(ctx context.Context, t *testing.T, m *vm.Machine) {
	t.Helper()
	const ask = "echo 1 >/proc/sys/net/ipv6/conf/eth0/accept_ra; ip link set eth0 down; ip link set eth0 up"
	if out, err := m.Run(ctx, ask); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	err := eventually(ctx, func() error {
		address, err := m.Run(ctx, "ip -6 addr show dev eth0 scope global")
		if err != nil {
			return err
		}
		route, err := m.Run(ctx, "ip -6 route show default")
		if err != nil {
			return err
		}
		if !strings.Contains(address, "fd00:52::5054:ff:fe52:50/64") || !strings.Contains(route, "default via fe80:") {
			return fmt.Errorf("the machine has %q and the route %q", address, route)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// asksForAddress has the machine ask by DHCP, and use what it is told.
func asksForAddress(ctx context.Context, t *testing.T, m *vm.Machine) {
	t.Helper()
	asks(ctx, t, m, "ip=10.52.0.50", "mask=24", "router=10.52.0.1", "dns=192.0.2.53", "search=red.example", "hostname=asker", "lease=600")
}

// asks has the machine ask by DHCP, configures it, and compares what it was told.
func asks(ctx context.Context, t *testing.T, m *vm.Machine, wanted ...string) {
	t.Helper()
	const script = `printf '#!/bin/sh\n[ "$1" = bound ] || exit 0\nip -4 addr flush dev eth0\nip addr add $ip/$mask dev eth0\n` +
		`ip route add default via $router\nenv >/tmp/told\n' >/tmp/script; chmod +x /tmp/script; rm -f /tmp/told`
	for _, line := range []string{script, "udhcpc -i eth0 -n -q -t 10 -T 1 -s /tmp/script -O mtu -O search"} {
		if out, err := m.Run(ctx, line); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	told, err := m.Run(ctx, "cat /tmp/told")
	for _, want := range wanted {
		if !strings.Contains("\n"+told+"\n", "\n"+want+"\n") {
			t.Errorf("the machine was told %q, %v, and not %s", told, err, want)
		}
	}
}
