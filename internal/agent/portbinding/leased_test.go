// SPDX-License-Identifier: Apache-2.0

package portbinding

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube/kubetest"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/dhcp/snoop"
)

// machineLeases records what is adopted and forgotten.
type machineLeases struct {
	none      bool // the backend passes nothing on
	mu        sync.Mutex
	adopted   []snoop.Lease
	forgotten []attachment.Key
}

func (l *machineLeases) Serves() bool { return !l.none }

func (l *machineLeases) Adopt(_ attachment.Attachment, lease snoop.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.adopted = append(l.adopted, lease)
}

func (l *machineLeases) Forget(k attachment.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgotten = append(l.forgotten, k)
}

// leasedPort is a Port on a Network with ipam DHCP, as the controller leaves it.
func leasedPort(name string, lease *v1alpha1.PortLease) *v1alpha1.Port {
	return &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1alpha1.PortSpec{Network: "office"},
		Status: v1alpha1.PortStatus{Phase: v1alpha1.PortReady, MAC: "52:54:00:00:00:01", Lease: lease},
	}
}

// A machine that asks DHCP servers of others is bound without an address, shows the one that it
// gets, and none when its interface is gone.
func TestLeasedPort(t *testing.T) {
	w, leases := stopped(t), &machineLeases{}
	w.leases = leases
	t.Cleanup(w.start())
	w.plug("tap0", "shop/vm", 5)
	w.api.Add(leasedPort("vm", nil))
	kubetest.Eventually(t, "the Port is bound", func() bool {
		s := w.status("vm")
		return s.Phase == v1alpha1.PortBound && len(s.Addresses) == 0 && w.connected("vm") != 0
	})
	key := attachment.PortKey("shop", "vm")
	if _, err := w.store.Readdress(key, []netip.Prefix{netip.MustParsePrefix("192.0.2.50/24")}); err != nil {
		t.Fatal(err)
	}
	w.Kick()
	kubetest.Eventually(t, "its address is shown", func() bool {
		return slices.Equal(w.status("vm").Addresses, []string{"192.0.2.50"}) && w.connected("vm") != 0
	})
	w.unplug("tap0")
	kubetest.Eventually(t, "the Port is ready, and has no address", func() bool {
		s := w.status("vm")
		return s.Phase == v1alpha1.PortReady && len(s.Addresses) == 0 && w.connected("vm") == 0
	})
	leases.mu.Lock()
	defer leases.mu.Unlock()
	if !slices.Equal(leases.forgotten, []attachment.Key{key}) {
		t.Errorf("forgotten are %v", leases.forgotten)
	}
}

// A machine that moves here goes on with its lease while that is valid.
func TestLeasedPortMoves(t *testing.T) {
	for name, left := range map[string]time.Duration{"valid": time.Hour, "over": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			w, leases := stopped(t), &machineLeases{}
			w.leases = leases
			t.Cleanup(w.start())
			w.plug("tap0", "shop/vm", 5)
			w.api.Add(leasedPort("vm", &v1alpha1.PortLease{
				Addresses: []string{"192.0.2.50"}, ExpireTime: &metav1.Time{Time: time.Now().Add(left)},
			}))
			kubetest.Eventually(t, "the Port is bound", func() bool {
				s := w.status("vm")
				return s.Phase == v1alpha1.PortBound && (len(s.Addresses) == 1) == (left > 0)
			})
			leases.mu.Lock()
			defer leases.mu.Unlock()
			if adopted := len(leases.adopted) == 1; adopted != (left > 0) {
				t.Errorf("adopted are %v", leases.adopted)
			}
		})
	}
}

// A backend that cannot pass on what machines ask has the Port say so.
func TestLeasedPortRefused(t *testing.T) {
	w := stopped(t)
	w.leases = &machineLeases{none: true}
	t.Cleanup(w.start())
	w.plug("tap0", "shop/vm", 5)
	w.api.Add(leasedPort("vm", nil))
	kubetest.Eventually(t, "the Port says why it is not bound", func() bool {
		return strings.HasPrefix(w.status("vm").LastError, "NoDHCPLease: the Network has ipam DHCP") && w.hasEvent("shop/vm NoDHCPLease")
	})
}
