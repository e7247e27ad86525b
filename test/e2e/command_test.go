// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"
)

// testCommand asks the coelan command what a user would ask it.
func testCommand(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	client1, web1, web2 := world.pod(ctx, t, "client1"), world.pod(ctx, t, "web1"), world.pod(ctx, t, "web2")
	for _, c := range []struct {
		args []string
		// want are texts in the order in which they come.
		want []string
	}{
		{[]string{"status"}, []string{
			"cp: ready", "worker1: ready", "Open vSwitch", "br-int", "netdev, connected", "10.244.", "fd00:10:244:", "flows",
			"to cp", "vxlan to 192.168.33.11", "to worker2", "worker2: ready",
		}},
		{[]string{"get", "ports", "--node", worker1}, []string{"ADDRESSES", "e2e/client1", client1.address(ipv4).String(), "ready", "e2e/web1"}},
		{[]string{"get", "ports"}, []string{"worker1", "e2e/web1", "worker2", "e2e/web2", web2.address(ipv6).String()}},
		{[]string{"check"}, []string{"cp", "worker1", "worker2"}},
		{[]string{"trace", "e2e/client1", "e2e/web2"}, []string{
			client1.address(ipv4).String(), web2.address(ipv4).String(),
			"node worker1", "tunnel to node worker2", "node worker2", "delivered to e2e/web2",
		}},
		{[]string{"trace", "-n", "e2e", "client1", "web2:8080", "--ipv6"}, []string{
			"tcp", client1.address(ipv6).String(), "node worker1", "tunnel to node worker2", "node worker2", "delivered to e2e/web2",
		}},
		{[]string{"trace", "-n", "e2e", "client1", "web1"}, []string{"node worker1", "delivered to e2e/web1"}},
		{[]string{"trace", "-n", "e2e", "client1", web1.address(ipv4).String() + ":8080"}, []string{"node worker1", "delivered to e2e/web1"}},
		{[]string{"get", "services", "-n", "e2e", "--node", worker1}, []string{"SERVICE", "e2e/web1", "30080", web1.address(ipv4).String() + ":8080"}},
		{[]string{"trace", "-n", "e2e", "client1", world.serviceAddress(ctx, t, "web2", ipv4).String() + ":80"}, []string{
			"node worker1", "service/e2e/web2", "endpoint " + web2.address(ipv4).String() + ":8080", "node worker2", "delivered to e2e/web2",
		}},
		{[]string{"trace", "-n", "e2e", "client1", outside(ipv4).String()}, []string{"node worker1", "kernel of node worker1"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			out, err := world.coelan(ctx, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			rest := out
			for _, text := range c.want {
				_, after, found := strings.Cut(rest, text)
				if !found {
					t.Fatalf("%q is missing, or not where it should be, in:\n%s", text, out)
				}
				rest = after
			}
		})
	}
}
