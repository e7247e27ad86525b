// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/sandbox"
)

// TestFloatingIPs has pods of the default Router and of a tenant answer to, and call the outside
// from, addresses of a physical network.
func TestFloatingIPs(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	useOffice(ctx, t)
	web := floatingPair(ctx, t, "web", "web1.eth0")
	red := floatingPair(ctx, t, "red/web", "web1.eth0")
	inOrder(t, []step{
		{"in and out", func(t *testing.T) {
			ctx := within(t, time.Minute)
			for _, f := range families {
				web.answers(ctx, t, f, "web1")
				red.answers(ctx, t, f, "web1")
				for _, w := range []way{
					{from: world.pod(ctx, t, "web1"), seen: web.addresses[f]},
					{from: world.tenant(ctx, t, "red/web1"), seen: red.addresses[f]},
					// It has none.
					{from: world.pod(ctx, t, "client1"), seen: world.nodeAddress(ctx, t, worker1, f)},
				} {
					w.server = netip.AddrPortFrom(outside(f), 80)
					w.check(ctx, t)
				}
			}
		}},
		{"status", func(t *testing.T) {
			ctx := within(t, time.Minute)
			for _, o := range web.objects(ctx, t) {
				ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
				if o.Status.Node != worker1 || ready == nil || ready.Reason != v1alpha1.ReasonBound {
					t.Errorf("FloatingIP %s: node %q, %+v", o.Name, o.Status.Node, ready)
				}
			}
		}},
		{"listed", func(t *testing.T) {
			out, err := world.coelan(within(t, time.Minute), "get", "floatingips", "-n", "red")
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				row := regexp.MustCompile(fmt.Sprintf(`(?m)^red/\S+ +office +%s +red/web1\.eth0 +worker1 +\S+ +in effect$`, red.addresses[f]))
				if !row.MatchString(out) {
					t.Errorf("no row %s in:\n%s", row, out)
				}
			}
		}},
		{"refused", testFloatingIPsRefused},
		{"restarts", func(t *testing.T) {
			ctx := within(t, 3*time.Minute)
			tr := startTraffic(ctx, t,
				route{way: "from outside", from: world.machine(ctx, t, "fabric"), to: world.pod(ctx, t, "web1"), at: web.addresses},
				route{way: "tenant to outside", from: world.tenant(ctx, t, "red/web1"), to: world.machine(ctx, t, "fabric")})
			for _, restart := range []func(context.Context) error{
				func(ctx context.Context) error { return world.Restart(ctx, worker1, sandbox.Agent, syscall.SIGKILL) },
				world.roll,
			} {
				if err := restart(ctx); err != nil {
					t.Fatal(err)
				}
			}
			tr.settle(ctx, t)
			allow(t, tr.stop(t), 0)
			world.healthy(ctx, t)
		}},
		{"moves", func(t *testing.T) {
			ctx := within(t, time.Minute)
			for _, o := range web.objects(ctx, t) {
				patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"port":"web2.eth0"}}`))
				if err := world.objects.Patch(ctx, o, patch); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range families {
				web.answers(ctx, t, f, "web2")
			}
		}},
		{"removed", func(t *testing.T) {
			ctx := within(t, time.Minute)
			remove(ctx, t, "-n", "red", "fip", "--all")
			fabric := world.machine(ctx, t, "fabric")
			for _, f := range families {
				server := netip.AddrPortFrom(red.addresses[f], 8080)
				question{corev1.ProtocolTCP, server}.fails(ctx, t, fabric, silent)
				way{from: world.tenant(ctx, t, "red/web1"), server: netip.AddrPortFrom(outside(f), 80),
					seen: world.nodeAddress(ctx, t, worker1, f)}.check(ctx, t)
			}
		}},
	})
}

// testFloatingIPsRefused has requests that cannot be met say why.
func testFloatingIPsRefused(t *testing.T) {
	ctx := within(t, time.Minute)
	for _, tc := range []struct{ key, spec, reason string }{
		{"blue/stranger", "network: office", v1alpha1.ReasonNotAllowed},
		{"e2e/gateway", "network: office, address: 198.51.100.1", v1alpha1.ReasonAddressOutside},
		{"e2e/range", "network: office, address: 198.51.100.50", v1alpha1.ReasonAddressOutside},
		{"e2e/elsewhere", "network: office, address: 192.0.2.9", v1alpha1.ReasonAddressOutside},
		{"e2e/none", "network: nothing", v1alpha1.ReasonNetworkNotFound},
		{"e2e/overlay", "network: default", v1alpha1.ReasonNotExternal},
		{"e2e/second", "network: office, ipFamily: IPv4, port: web1.eth0", v1alpha1.ReasonPortTaken},
	} {
		namespace, name := split(tc.key)
		apply(ctx, t, fmt.Sprintf("{apiVersion: coelan.io/v1alpha1, kind: FloatingIP, metadata: {namespace: %s, name: %s}, spec: {%s}}",
			namespace, name, tc.spec))
		o := named(&v1alpha1.FloatingIP{}, tc.key)
		if err := eventually(ctx, func() error {
			if err := world.objects.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
			if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != tc.reason {
				return fmt.Errorf("FloatingIP %s: %+v, want %s", tc.key, ready, tc.reason)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		remove(ctx, t, "-n", namespace, "fip", name)
	}
}

// floating is the pair of FloatingIPs of a Port.
type floating struct {
	keys      []string
	addresses map[family]netip.Addr
}

// floatingPair makes FloatingIPs of both families for a Port, and waits until they have addresses.
func floatingPair(ctx context.Context, t *testing.T, key, port string) *floating {
	t.Helper()
	x := &floating{addresses: map[family]netip.Addr{}}
	namespace, name := split(key)
	for _, f := range families {
		each := name + strings.ToLower(strings.TrimPrefix(string(f), "IP"))
		apply(ctx, t, fmt.Sprintf("{apiVersion: coelan.io/v1alpha1, kind: FloatingIP, metadata: {namespace: %s, name: %s}, "+
			"spec: {network: office, ipFamily: %s, port: %s}}", namespace, each, f, port))
		t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "-n", namespace, "fip", each) })
		if _, err := world.Kubectl(ctx, "-n", namespace, "wait", "fip", each, "--for=condition=Ready", "--timeout=60s"); err != nil {
			t.Fatal(err)
		}
		x.keys = append(x.keys, namespace+"/"+each)
	}
	for i, o := range x.objects(ctx, t) {
		x.addresses[families[i]] = netip.MustParseAddr(o.Status.Address)
	}
	return x
}

func (x *floating) objects(ctx context.Context, t *testing.T) (list []*v1alpha1.FloatingIP) {
	t.Helper()
	for _, key := range x.keys {
		o := named(&v1alpha1.FloatingIP{}, key)
		if err := world.objects.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		list = append(list, o)
	}
	return list
}

// answers waits until a pod answers the outside at the FloatingIP, and sees the client as it is.
func (x *floating) answers(ctx context.Context, t *testing.T, f family, pod string) {
	t.Helper()
	fabric, server := world.machine(ctx, t, "fabric"), netip.AddrPortFrom(x.addresses[f], 8080)
	if err := eventually(ctx, func() error {
		host, err := get(ctx, fabric, server, "/hostname")
		if err == nil && host != pod {
			err = fmt.Errorf("%s answers at %s, want %s", host, server, pod)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if seen, err := clientOf(ctx, fabric, server); err != nil || seen != officeGateway[f].Addr() {
		t.Errorf("%s sees the client %s, %v; want %s", server, seen, err, officeGateway[f].Addr())
	}
}
