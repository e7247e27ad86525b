// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"coelan.io/coelan/internal/intent"
)

func TestPlaces(t *testing.T) {
	mates := []slotMate{{"a", "a/1"}, {"a", "a/2"}, {"a", "a/3"}, {"b", "b/1"}, {"b", "b/2"}, {"c", "c/1"}}
	order := []string{"a/1", "b/1", "c/1", "a/2", "b/2", "a/3"}
	for _, m := range mates {
		if got, want := placeAmong(mates, m), slices.Index(order, m.key); int(got) != want {
			t.Errorf("%s has place %d, want %d", m.key, got, want)
		}
	}
	if got := placeAmong(mates[5:], mates[5]); got != 0 {
		t.Errorf("who is alone has place %d", got)
	}
}

// A namespace with Services of many names cannot take away another namespace's numbers.
func TestSlotsCannotBeCrowded(t *testing.T) {
	victim := intent.NodeService{Namespace: "z", Name: "web", Router: intent.DefaultRouterName}
	o := smallWorld()
	o.Local.ServiceMode = intent.NativeServices
	o.NodeServices = []intent.NodeService{victim}
	for i := 0; len(o.NodeServices) <= 1<<placeBits+1; i++ {
		v := intent.NodeService{Namespace: "a", Name: fmt.Sprint("web-", i), Router: intent.DefaultRouterName}
		if serviceSlot(v) == serviceSlot(victim) {
			o.NodeServices = append(o.NodeServices, v)
		}
	}
	for i := range o.NodeServices {
		o.NodeServices[i].Ports = []intent.NodeServicePort{{
			Protocol: intent.TCP, Port: 80, ClusterIP: netip.AddrFrom4([4]byte{10, 96, 1, byte(i)}),
			Endpoints: []intent.Endpoint{{Address: netip.MustParseAddr("10.244.1.2"), Port: 80}},
		}}
	}
	c := New()
	c.Compile(inputOf(stateOf(t, o)))
	if p := c.Problems(); len(p) != 2 || slices.ContainsFunc(p, func(p Problem) bool { return !strings.HasPrefix(p.Owner, "service/a/") }) {
		t.Errorf("problems %v, want those of the last two of namespace a", p)
	}
}
