// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/restconf/yangmodel"
)

func TestNodeName(t *testing.T) {
	for name, want := range map[string]string{
		"vni": "vni", "physicalNetwork": "physical-network", "remoteIPPrefix": "remote-ip-prefix", "floatingIP": "floating-ip", "ipFamily": "ip-family",
		"PodCIDR": "pod-cidr", "NoEncap": "no-encap", "VXLAN": "vxlan", "IPv4": "ipv4", "DoesNotExist": "does-not-exist", "addressesUsed": "addresses-used",
	} {
		if got := nodeName(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// schemaOf is the list of a kind in the models.
func schemaOf(k kind) *datatree.Node {
	root := datatree.NewSchema(yangmodel.SchemaTree["Root"], yangmodel.Root{})
	return root.Children[k.container].Children[k.list]
}

// TestEveryFieldHasANode compares the objects of coelan.io with the module: neither has something
// that the other lacks.
func TestEveryFieldHasANode(t *testing.T) {
	for _, k := range kinds {
		n := schemaOf(k)
		object := reflect.TypeOf(k.object()).Elem()
		spec, _ := object.FieldByName("Spec")
		status, there := object.FieldByName("Status")
		own := map[string]bool{"name": true, "namespace": true, "description": true, "status": true}
		compareFields(t, k.list, n, spec.Type, own)
		if c := n.Children["status"]; c == nil || !there {
			t.Errorf("%s has no status", k.list)
		} else {
			compareFields(t, k.list+"/status", c, status.Type, nil)
		}
	}
}

// compareFields compares the fields of a struct with the children of a node.
func compareFields(t *testing.T, at string, n *datatree.Node, typ reflect.Type, own map[string]bool) {
	t.Helper()
	left := map[string]bool{}
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		left[name] = true
	}
	v := reflect.New(typ).Elem()
	for name, c := range n.Children {
		if own[name] || n.Positioned() && name == n.Keys[0] {
			continue
		}
		f, ok := field(v, c)
		if !ok {
			t.Errorf("%s/%s is no field of %s", at, name, typ)
			continue
		}
		for i := range typ.NumField() {
			if v.Field(i) == f {
				name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
				delete(left, name)
			}
		}
		below := f.Type()
		for below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice {
			below = below.Elem()
		}
		var keys map[string]bool
		if below.Kind() == reflect.Map {
			if c.Kind == datatree.Container {
				c = onlyChild(c)
			}
			below, keys = below.Elem(), map[string]bool{c.Keys[0]: true}
		}
		if below.Kind() == reflect.Struct && below != reflect.TypeFor[metav1.Time]() {
			compareFields(t, at+"/"+name, c, below, keys)
		}
	}
	for name := range left {
		t.Errorf("%s has no node for %s of %s", at, name, typ)
	}
}

// FuzzFields reads an entry into an object and shows it again: what that shows is read and shown as
// the same.
func FuzzFields(f *testing.F) {
	for i := range kinds {
		f.Add(uint8(i), `{"name":"a","namespace":"b","network":"n","address":["10.0.0.1"],"vni":7,"subnet":[{"cidr":"10.0.0.0/8","range":[{"from":"10.0.0.1","to":"10.0.0.2"}]}]}`)
		f.Add(uint8(i), `{"name":"a","node-selector":{},"bridge-mappings":{"bridge-mapping":[{"physical-network":"a","bridge":"b"}]},"uplinks":{},"dhcp":{},"dns":{}}`)
		f.Add(uint8(i), `{"name":"a","namespace":"b","rule":[{"position":1,"direction":"ingress","port-range-min":0},{"position":0,"direction":"egress"}],"auto-assign":false}`)
	}
	f.Fuzz(func(t *testing.T, of uint8, text string) {
		k := kinds[int(of)%len(kinds)]
		n := schemaOf(k)
		show := func(entry map[string]any) map[string]any {
			w := &World{
				Networks: map[string]*v1alpha1.Network{}, Routers: map[string]*v1alpha1.Router{},
				Ports: map[types.NamespacedName]*v1alpha1.Port{},
			}
			if k.edit(w, n, entry) != nil {
				return nil
			}
			list := k.show(w, n, true, "")
			if len(list) != 1 {
				t.Fatalf("%d entries", len(list))
			}
			return list[0]
		}
		value, err := datatree.Decode([]byte(text))
		if err != nil {
			return
		}
		checked, err := datatree.Check(n, []any{value}, "")
		if err != nil {
			return
		}
		first := show(checked.([]any)[0].(map[string]any))
		if first == nil {
			return
		}
		again, err := json.Marshal(show(clone(t, n, first)))
		if err != nil {
			t.Fatal(err)
		}
		if want, _ := json.Marshal(first); string(again) != string(want) {
			t.Errorf("first %s\nthen  %s", want, again)
		}
	})
}

// clone is an entry as a client sends it back: without state.
func clone(t *testing.T, n *datatree.Node, entry map[string]any) map[string]any {
	t.Helper()
	kept, ok := datatree.Query{Content: datatree.Config}.Select(n, entry).(map[string]any)
	if !ok {
		return entry
	}
	return kept
}
