// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/sandbox"
)

// testServicesRestart restarts agents while pods, nodes and servers themselves use Services: not
// one packet may be lost.
func testServicesRestart(t *testing.T) {
	client1, client2 := "client1", "client2"
	for _, r := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"agent killed (SIGKILL)", func(ctx context.Context) error {
			return world.Restart(ctx, worker1, sandbox.Agent, syscall.SIGKILL)
		}},
		{"agents rolled", world.roll},
	} {
		t.Run(r.name, func(t *testing.T) {
			ctx := within(t, 3*time.Minute)
			var routes []route
			for i, c := range []struct {
				way  string
				from place
			}{
				{"Service, from a pod", world.pod(ctx, t, client1)},
				{"Service, from a node", world.machine(ctx, t, worker1)},
				{"Service, from its server", world.pod(ctx, t, client2)},
			} {
				port := servicePort + 1 + uint16(i)
				s := of(dualService("steady-"+string(rune('a'+i)), ""), func(s *corev1.ServiceSpec) {
					s.Selector = map[string]string{"server": client2}
					for i := range s.Ports {
						s.Ports[i].Port, s.Ports[i].TargetPort.IntVal = int32(port), int32(port)
					}
				})
				s.Namespace = namespace
				makeService(ctx, t, s)
				routes = append(routes, route{way: c.way, from: c.from, to: world.pod(ctx, t, client2), service: s.Name, port: port})
			}
			tr := startTraffic(ctx, t, routes...)
			if err := r.do(ctx); err != nil {
				t.Fatal(err)
			}
			tr.settle(ctx, t)
			allow(t, tr.stop(t), 0)
			world.healthy(ctx, t)
		})
	}
}
