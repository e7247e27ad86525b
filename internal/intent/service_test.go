// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fullService is a Service of which no list is empty.
func fullService() *Service {
	ip := netip.MustParseAddr("192.0.2.1")
	return &Service{
		Namespace: "shop", Name: "web", SourceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, EndpointNodes: []string{"n1"},
		Ports: []ServicePort{{
			ClusterIP: ip, ExternalIPs: []netip.Addr{ip}, LoadBalancerIPs: []netip.Addr{ip},
			Endpoints: []Endpoint{{ip, 80}}, LocalEndpoints: []Endpoint{{ip, 80}}, Draining: []Endpoint{{ip, 80}},
		}},
	}
}

// changesOf calls visit with each way to change one field of a Service, elements of lists among them.
func changesOf(t *testing.T, visit func(path string, change func(*Service))) {
	t.Helper()
	var walk func(path string, at func(*Service) reflect.Value)
	walk = func(path string, at func(*Service) reflect.Value) {
		set := func(what string, change func(reflect.Value)) {
			visit(path+what, func(v *Service) { change(at(v)) })
		}
		switch v := at(fullService()); {
		case v.Type() == reflect.TypeFor[netip.Addr]():
			set("", func(v reflect.Value) { v.Set(reflect.ValueOf(netip.MustParseAddr("2001:db8::1"))) })
		case v.Type() == reflect.TypeFor[netip.Prefix]():
			set("", func(v reflect.Value) { v.Set(reflect.ValueOf(netip.MustParsePrefix("10.0.0.0/9"))) })
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				walk(path+"."+v.Type().Field(i).Name, func(s *Service) reflect.Value { return at(s).Field(i) })
			}
		case v.Kind() == reflect.Slice:
			if v.Len() == 0 {
				t.Fatalf("%s of the full Service is empty", path)
			}
			set(" cut", func(v reflect.Value) { v.SetLen(0) })
			walk(path+"[0]", func(s *Service) reflect.Value { return at(s).Index(0) })
		case v.Kind() == reflect.Bool:
			set("", func(v reflect.Value) { v.SetBool(!v.Bool()) })
		case v.Kind() == reflect.String:
			set("", func(v reflect.Value) { v.SetString(v.String() + "x") })
		case v.CanUint():
			set("", func(v reflect.Value) { v.SetUint(v.Uint() + 1) })
		case v.CanInt():
			set("", func(v reflect.Value) { v.SetInt(v.Int() + 1) })
		default:
			t.Fatalf("%s is a %s", path, v.Type())
		}
	}
	walk("", func(v *Service) reflect.Value { return reflect.ValueOf(v).Elem() })
}

// A Service that differs in any field is another one to a Store.
func TestServiceEqual(t *testing.T) {
	if !fullService().equal(*fullService()) {
		t.Error("a Service does not equal itself")
	}
	n := 0
	changesOf(t, func(path string, change func(*Service)) {
		v := fullService()
		change(v)
		if v.equal(*fullService()) || fullService().equal(*v) {
			t.Errorf("%s does not count", path)
		}
		n++
	})
	if n < 30 {
		t.Errorf("%d changes are not all", n)
	}
}

// What is in a Store is not what was put in.
func TestServiceClone(t *testing.T) {
	changesOf(t, func(path string, change func(*Service)) {
		v := fullService()
		stored := v.clone()
		change(v)
		if !stored.equal(*fullService()) {
			t.Errorf("%s of what was stored has changed", path)
		}
	})
}

func keysOf(seq func(func(Service) bool)) (keys []string) {
	for v := range seq {
		keys = append(keys, v.key())
	}
	return keys
}

// sharedSlot are two names in one namespace whose Slot is the same, and one that has another.
func sharedSlot(t *testing.T) (a, b, other Service) {
	t.Helper()
	seen := map[uint32]Service{}
	for i := range 10000 {
		v := Service{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}
		if first, ok := seen[v.Slot()]; ok {
			for _, o := range seen {
				if o.Slot() != v.Slot() {
					return first, v, o
				}
			}
		}
		seen[v.Slot()] = v
	}
	t.Fatal("no two of 10,000 names share a slot of 18 bits")
	return
}

func TestServicesIn(t *testing.T) {
	a, b, other := sharedSlot(t)
	if a.Slot() >= 1<<slotBits {
		t.Errorf("slot %d has more than %d bits", a.Slot(), slotBits)
	}
	same := a
	same.UID, same.Ports = "another", fullService().Ports
	if same.Slot() != a.Slot() {
		t.Error("the slot depends on more than the name")
	}
	store := NewStore()
	state := mustUpdate(t, store, func(tx *Tx) {
		for _, v := range []Service{b, other, a} {
			tx.SetService(v)
		}
	})
	want := []string{a.key(), b.key()}
	slices.Sort(want)
	if diff := cmp.Diff(want, keysOf(state.ServicesIn(a.Slot()))); diff != "" {
		t.Errorf("services in the slot (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{other.key()}, keysOf(state.ServicesIn(other.Slot()))); diff != "" {
		t.Errorf("services in another slot (-want +got):\n%s", diff)
	}
	state = mustUpdate(t, store, func(tx *Tx) { tx.DeleteService(a.key()); tx.DeleteService("shop/not-there") })
	if diff := cmp.Diff([]string{b.key()}, keysOf(state.ServicesIn(a.Slot()))); diff != "" {
		t.Errorf("services left in the slot (-want +got):\n%s", diff)
	}
}

// Slots are spread well enough that of 10,000 Services of a cluster, only few share one with more than one other.
func TestSlotsAreSpread(t *testing.T) {
	count, most := map[uint32]int{}, 0
	for i := range 10000 {
		v := Service{Namespace: fmt.Sprintf("namespace-%d", i%100), Name: fmt.Sprintf("service-%d", i)}
		count[v.Slot()]++
		most = max(most, count[v.Slot()])
	}
	if most > 5 || len(count) < 9600 {
		t.Errorf("10,000 Services have %d slots, and %d share one", len(count), most)
	}
}

func TestDiffOfServices(t *testing.T) {
	store := NewStore()
	v := *fullService()
	gone, moved := Service{Namespace: "shop", Name: "gone"}, v
	prefix := func(s string) ServiceRange { return ServiceRange{netip.MustParsePrefix(s)} }
	from := mustUpdate(t, store, func(tx *Tx) {
		tx.ReplaceServices([]Service{v, gone, {Namespace: "shop", Name: "same"}})
		tx.ReplaceServiceRanges([]ServiceRange{prefix("10.96.0.0/12"), prefix("10.200.0.0/16")})
	})
	moved.Ports = v.clone().Ports
	moved.Ports[0].Endpoints[0].Port++
	to := mustUpdate(t, store, func(tx *Tx) {
		tx.ReplaceServices([]Service{{Namespace: "other", Name: "new"}, {Namespace: "shop", Name: "same"}, moved})
		tx.ReplaceServiceRanges([]ServiceRange{prefix("10.96.0.0/12"), prefix("fd00:96::/108")})
	})
	want := Delta{Services: []string{"other/new", "shop/gone", "shop/web"}, ServiceRanges: []string{"10.200.0.0/16", "fd00:96::/108"}}
	if diff := cmp.Diff(want, Diff(from, to)); diff != "" {
		t.Errorf("Diff (-want +got):\n%s", diff)
	}
	if want.Empty() || (Delta{ServiceRanges: want.ServiceRanges}).Empty() || (Delta{Services: want.Services}).Empty() {
		t.Error("a Delta with Services is empty")
	}
	if to.Services().Len() != 3 || to.ServiceRanges().Len() != 2 {
		t.Errorf("%d services, %d ranges", to.Services().Len(), to.ServiceRanges().Len())
	}
	same := mustUpdate(t, store, func(tx *Tx) { tx.SetService(moved) })
	if same != to {
		t.Error("setting an equal Service made a new State")
	}
}

func TestEndpointCompare(t *testing.T) {
	list := []Endpoint{
		{netip.MustParseAddr("10.0.0.1"), 80}, {netip.MustParseAddr("10.0.0.1"), 8080}, {netip.MustParseAddr("10.0.0.2"), 1},
		{netip.MustParseAddr("10.0.0.10"), 1}, {netip.MustParseAddr("fd00::1"), 1},
	}
	for i, a := range list {
		for j, b := range list {
			if got := a.Compare(b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%v.Compare(%v) = %d", a, b, got)
			}
		}
	}
}

func TestProtocolString(t *testing.T) {
	for p, want := range map[Protocol]string{TCP: "TCP", UDP: "UDP", SCTP: "SCTP", 47: "47"} {
		if p.String() != want {
			t.Errorf("%d is %q, want %q", uint8(p), p, want)
		}
	}
}
