// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/names"
)

func fip(address, port string) *v1alpha1.FloatingIP {
	return &v1alpha1.FloatingIP{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "www"},
		Spec:       v1alpha1.FloatingIPSpec{Network: "office", Port: port},
		Status:     v1alpha1.FloatingIPStatus{Address: address},
	}
}

func claimOf(address, owner string) *v1alpha1.AddressBlock {
	a := netip.MustParseAddr(address)
	whole := netip.PrefixFrom(a, a.BitLen())
	return &v1alpha1.AddressBlock{
		ObjectMeta: metav1.ObjectMeta{Name: names.BlockName("office", whole)},
		Spec:       v1alpha1.AddressBlockSpec{Network: "office", CIDR: whole.String(), FloatingIP: owner},
	}
}

// A FloatingIP has effect as long as its address is its own by an AddressBlock, whatever its status
// says.
func TestFloatingIPsInEffect(t *testing.T) {
	const address = "192.0.2.10"
	www := intent.FloatingIP{
		Name: "shop/www", Network: "office", Address: netip.MustParseAddr(address), Port: "shop/web-0.eth0",
	}
	alone := www
	alone.Port = ""
	refused := fip(address, "web-0.eth0")
	refused.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}}
	elsewhere := claimOf(address, "shop/www")
	elsewhere.Spec.Network = "lab"
	for _, tc := range []struct {
		name   string
		object *v1alpha1.FloatingIP
		claim  *v1alpha1.AddressBlock
		want   []intent.FloatingIP
	}{
		{"whole", fip(address, "web-0.eth0"), claimOf(address, "shop/www"), []intent.FloatingIP{www}},
		{"without a Port", fip(address, ""), claimOf(address, "shop/www"), []intent.FloatingIP{alone}},
		{"refused by the controller", refused, claimOf(address, "shop/www"), nil},
		{"without an address yet", fip("", "web-0.eth0"), nil, nil},
		{"with an address that is none", fip("office", "web-0.eth0"), nil, nil},
		{"with an address that nothing owns", fip(address, "web-0.eth0"), nil, nil},
		{"with the address of another one", fip(address, "web-0.eth0"), claimOf(address, "bank/www"), nil},
		{"with the address of a Port", fip(address, "web-0.eth0"), claimOf(address, ""), nil},
		{"with the address of another Network", fip(address, "web-0.eth0"), elsewhere, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, claimFirst := range []bool{true, false} {
				s := NewFloatingIPSet()
				claim := func() {
					if tc.claim != nil {
						s.SetBlock(tc.claim.Name, tc.claim)
					}
				}
				if claimFirst {
					claim()
					s.Changes()
				}
				s.Set("shop/www", tc.object)
				got := s.Changes().Set
				if !claimFirst {
					claim()
					got = s.Changes().Set
				}
				if diff := cmp.Diff(tc.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
					t.Errorf("with the block first %t: %s", claimFirst, diff)
				}
			}
		})
	}
}

// What loses its address, or goes, has no effect any more.
func TestFloatingIPsGone(t *testing.T) {
	for name, leave := range map[string]func(*FloatingIPSet, string){
		"the object": func(s *FloatingIPSet, _ string) { s.Set("shop/www", nil) },
		"the block":  func(s *FloatingIPSet, block string) { s.SetBlock(block, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s := NewFloatingIPSet()
			claim := claimOf("192.0.2.10", "shop/www")
			s.SetBlock(claim.Name, claim)
			s.Set("shop/www", fip("192.0.2.10", "web-0.eth0"))
			if c := s.Changes(); len(c.Set) != 1 {
				t.Fatalf("it has no effect: %+v", c)
			}
			if c := s.Changes(); len(c.Set)+len(c.Gone) > 0 {
				t.Errorf("nothing was touched, and changes are %+v", c)
			}
			leave(s, claim.Name)
			if c := s.Changes(); len(c.Gone) != 1 || c.Gone[0].Name != "shop/www" || len(c.Set) != 0 {
				t.Errorf("it still has effect: %+v", c)
			}
		})
	}
}
