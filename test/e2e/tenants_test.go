// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// silence is how long there must be no answer.
const silence = time.Second

// testTenants looks at the two tenants with the same subnets: nothing goes across, and what
// Kubernetes does with pods works. That they reach what they should is in testReach, and that their
// probes pass in their being ready.
func testTenants(t *testing.T) {
	t.Run("isolation", testIsolation)
	t.Run("Services and names", testTenantServices)
	t.Run("kubectl", testTenantKubectl)
}

// testIsolation tries every way from tenant to tenant, and between tenants and the default network.
func testIsolation(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	red, blue := world.tenant(ctx, t, "red/client1"), world.tenant(ctx, t, "blue/shop1")
	type try struct {
		from place
		to   netip.Addr
	}
	var tries []try
	add := func(from place, addresses []netip.Addr) {
		for _, a := range addresses {
			tries = append(tries, try{from, a})
		}
	}
	var shops []netip.Addr
	for _, key := range []string{"blue/shop1", "blue/shop2"} {
		own, node := world.tenant(ctx, t, key), world.pod(ctx, t, key)
		shops = append(shops, own.addresses...)
		add(red, node.addresses)
		add(world.pod(ctx, t, "client1"), append(own.addresses, node.addresses...))
		add(world.pod(ctx, t, "client2"), append(own.addresses, node.addresses...))
	}
	for _, key := range []string{"red/web1", "red/web2"} {
		own := world.tenant(ctx, t, key)
		for _, a := range own.addresses {
			if !slices.Contains(shops, a) {
				add(blue, []netip.Addr{a})
			} else if got, err := get(ctx, blue, netip.AddrPortFrom(a, webPort), "/hostname"); err != nil || !strings.HasPrefix(got, "shop") {
				t.Errorf("blue asks %s and hears %q, %v; want a shop", a, got, err)
			}
		}
	}
	for _, key := range []string{"web1", "web2"} {
		add(red, world.pod(ctx, t, key).addresses)
	}
	var group sync.WaitGroup
	for _, c := range tries {
		group.Go(func() { closed(ctx, t, c.from, netip.AddrPortFrom(c.to, webPort)) })
	}
	group.Wait()
}

// closed reports it if a web server answers.
func closed(ctx context.Context, t *testing.T, from place, to netip.AddrPort) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	if got, err := get(ctx, from, to, "/hostname"); err == nil {
		t.Errorf("%s reaches %s, which is %s", from.name, to, got)
	}
}

// testTenantServices resolves names in a tenant's pod, and asks its own Service and the other
// tenant's by them.
func testTenantServices(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	for _, f := range families {
		kind := map[family]string{ipv4: "A", ipv6: "AAAA"}[f]
		want := world.serviceAddress(ctx, t, "red/web", f)
		err := eventually(ctx, func() error {
			out, err := world.Kubectl(ctx, "-n", "red", "exec", "client1", "--", "dig", "+short", "+search", "web", kind)
			if err == nil && strings.TrimSpace(string(out)) != want.String() {
				err = fmt.Errorf("web is %q, want %s", out, want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		red := world.tenant(ctx, t, "red/client1")
		if err := eventually(ctx, func() error { _, err := get(ctx, red, netip.AddrPortFrom(want, 80), "/hostname"); return err }); err != nil {
			t.Errorf("red's own Service %s: %v", want, err)
		}
		shop := world.serviceAddress(ctx, t, "blue/shop", f)
		short, cancel := context.WithTimeout(ctx, silence)
		if got, err := get(short, red, netip.AddrPortFrom(shop, 80), "/hostname"); err == nil {
			t.Errorf("red reaches blue's Service %s, which is %s", shop, got)
		}
		cancel()
	}
}

// testTenantKubectl uses logs, exec and port-forward with pods of two tenants that
// have the same addresses.
func testTenantKubectl(t *testing.T) {
	ctx := within(t, time.Minute)
	for _, key := range []string{"red/web1", "red/web2", "blue/shop1", "blue/shop2"} {
		namespace, name := split(key)
		out, err := world.Kubectl(ctx, "-n", namespace, "logs", name)
		if err != nil || !strings.Contains(string(out), "Started HTTP server") {
			t.Errorf("logs of %s: %q, %v", key, out, err)
		}
		out, err = world.Kubectl(ctx, "-n", namespace, "exec", name, "--", "hostname")
		if err != nil || strings.TrimSpace(string(out)) != name {
			t.Errorf("exec in %s: %q, %v", key, out, err)
		}
		if got, err := forwarded(ctx, namespace, name); err != nil || got != name {
			t.Errorf("port-forward to %s: %q, %v", key, got, err)
		}
	}
}

// forwarded asks a pod's web server through kubectl port-forward.
func forwarded(ctx context.Context, namespace, name string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := world.KubectlCommand(ctx, "-n", namespace, "port-forward", name, fmt.Sprintf(":%d", webPort))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // it has been killed
	}()
	line, err := bufio.NewReader(out).ReadString('\n') // Forwarding from 127.0.0.1:NUMBER -> 8080
	if err != nil {
		return "", fmt.Errorf("%v: %w", cmd.Args, err)
	}
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return "", fmt.Errorf("%v says %q", cmd.Args, line)
	}
	local, err := netip.ParseAddrPort(fields[2])
	if err != nil {
		return "", err
	}
	return get(ctx, here, local, "/hostname")
}

// here is where the tests run.
var here = place{name: "this machine"}
