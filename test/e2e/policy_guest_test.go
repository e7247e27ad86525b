// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/test/vm"
)

// testGuestPolicies has policies select the Port of a virtual machine by its labels, as a subject
// and as a peer.
func testGuestPolicies(t *testing.T, m *vm.Machine, port *v1alpha1.Port) {
	ctx := within(t, 2*time.Minute)
	addresses, err := parseAddresses(port.Status.Addresses)
	if err != nil {
		t.Fatal(err)
	}
	guest := place{name: "the guest", addresses: addresses}
	at := func(f family) question {
		return question{corev1.ProtocolTCP, netip.AddrPortFrom(guest.address(f), 80)}
	}
	client, server := world.tenant(ctx, t, "red/client1"), world.tenant(ctx, t, "red/web1")
	asks := func(open bool) {
		t.Helper()
		for _, f := range families {
			err := eventually(ctx, func() error {
				_, err := m.Run(ctx, fmt.Sprintf("timeout 2 wget -q -O - http://%s/hostname", netip.AddrPortFrom(server.address(f), webPort)))
				if open == (err == nil) {
					return nil
				}
				return errors.Join(err, fmt.Errorf("answered: %t, want %t", !open, open))
			})
			if err != nil {
				t.Errorf("the guest asks %s, %s: %v", server.name, f, err)
			}
		}
	}
	t.Run("to the guest", func(t *testing.T) {
		policyIn(ctx, t, "red", "guest", "podSelector: {matchLabels: {app: guest}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}]")
		for _, f := range families {
			at(f).fails(ctx, t, client, silent)
			at(f).opens(ctx, t, server)
		}
		asks(true)
	})
	t.Run("from the guest", func(t *testing.T) {
		policyIn(ctx, t, "red", "web", "podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [guest]}]}}]}]")
		asks(false)
		out, err := world.coelan(ctx, "trace", port.Namespace+"/"+port.Name, fmt.Sprintf("red/web1:%d", webPort))
		if err != nil || !strings.Contains(out, "no rule of NetworkPolicy red/web allows it") {
			t.Errorf("trace from the guest: %v\n%s", err, out)
		}
		judge(ctx, t, func(f family) []try { return []try{{client, web(server, f), true}} })
	})
	asks(true)
	for _, f := range families {
		at(f).opens(ctx, t, client)
	}
}

// opens waits until the small web server of a virtual machine answers.
func (q question) opens(ctx context.Context, t *testing.T, from place) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, learning)
	defer cancel()
	if err := eventually(ctx, func() error { _, err := get(ctx, from, q.at, "/cgi-bin/clientip"); return err }); err != nil {
		t.Errorf("%s asks %s: %v", from.name, q, err)
	}
}
