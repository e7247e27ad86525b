// SPDX-License-Identifier: Apache-2.0

package datatree_test

import (
	"encoding/json"
	"strings"
	"testing"

	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/restconf/yangmodel"
)

var root = datatree.NewSchema(yangmodel.SchemaTree["Root"], yangmodel.Root{})

func TestPaths(t *testing.T) {
	for _, c := range []struct {
		path   string
		former bool
		want   string // the path as an instance-identifier
	}{
		{"", false, ""},
		{"/", false, ""},
		{"/pod:coe", false, "/pod:coe"},
		{"/pod:coe/", false, "/pod:coe"},
		{"/pod:coe/pod:pods=11111111-2222-3333-4444-AAAAAAAAAAAA", false, "/pod:coe/pods[uid='11111111-2222-3333-4444-aaaaaaaaaaaa']"},
		{"/elan:elan-instances/elan-instance=a%2Fb%20c%2Cd", false, "/elan:elan-instances/elan-instance[elan-instance-name='a/b c,d']"},
		{"/elan:elan-instances/elan-instance=it's", false, `/elan:elan-instances/elan-instance[elan-instance-name="it's"]`},
		{"/elan:elan-instances/elan-instance=%C3%BC%3A", false, "/elan:elan-instances/elan-instance[elan-instance-name='ü:']"},
		{"/elan:elan-instances/elan-instance/a%2Fb/description", true, "/elan:elan-instances/elan-instance[elan-instance-name='a/b']/description"},
		{"/elan:elan-instances/elan-instance", true, "/elan:elan-instances/elan-instance"},
		{"/dhcp_allocation_pool:dhcp_allocation_pool/network=a/allocation-pool=FD00:0::%2F64", false, "/dhcp_allocation_pool:dhcp_allocation_pool/network[network-id='a']/allocation-pool[subnet='fd00::/64']"},
	} {
		p, err := datatree.ParsePath(root, c.path, c.former)
		if err != nil || p.String() != c.want {
			t.Errorf("%s: %s, %v, want %s", c.path, p, err, c.want)
			continue
		}
		again, err := datatree.ParsePath(root, p.URI(), false)
		if err != nil || again.String() != c.want {
			t.Errorf("%s as a URI, %s: %s, %v", c.path, p.URI(), again, err)
		}
	}
}

// instances is a tree with two instances.
const instances = `{"elan:elan-instances":{"elan-instance":[
	{"elan-instance-name":"a","segmentation-id":7,"description":"first"},{"elan-instance-name":"b","external":true}]},
	"l3vpn:vpn-instances":{"vpn-instance":[{"vpn-instance-name":"r","l3vni":9,"ipv4-family":{"route-distinguisher":["1:1"]}}]}}`

func tree(t *testing.T, text string) map[string]any {
	t.Helper()
	value, err := datatree.Decode([]byte(text))
	if err == nil {
		value, err = datatree.Check(root, value, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	return value.(map[string]any)
}

// text is a value as JSON with sorted members.
func text(t *testing.T, value any) string {
	t.Helper()
	b, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestQueries(t *testing.T) {
	const a, b = `{"description":"first","elan-instance-name":"a","segmentation-id":7}`, `{"elan-instance-name":"b","external":true}`
	for _, c := range []struct{ path, query, want string }{
		{"/elan:elan-instances", "", `{"elan:elan-instances":{"elan-instance":[` + a + `,` + b + `]}}`},
		{"/elan:elan-instances/elan-instance=b", "", `{"elan:elan-instance":[` + b + `]}`},
		{"/elan:elan-instances/elan-instance=b/external", "", `{"elan:external":true}`},
		{"/elan:elan-instances", "depth=1", `{"elan:elan-instances":{}}`},
		{"/elan:elan-instances", "depth=2", `{"elan:elan-instances":{"elan-instance":[{},{}]}}`},
		{"/elan:elan-instances", "depth=unbounded&content=config", `{"elan:elan-instances":{"elan-instance":[` + a + `,` + b + `]}}`},
		{"/elan:elan-instances", "content=nonconfig", `{"elan:elan-instances":{}}`},
		{"/elan:elan-instances", "fields=elan-instance/description", `{"elan:elan-instances":{"elan-instance":[{"description":"first","elan-instance-name":"a"},{"elan-instance-name":"b"}]}}`},
		{"", "fields=elan:elan-instances(elan-instance(external));l3vpn:vpn-instances/vpn-instance/l3vni",
			`{"ietf-restconf:data":{"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"a"},{"elan-instance-name":"b","external":true}]},"l3vpn:vpn-instances":{"vpn-instance":[{"l3vni":9,"vpn-instance-name":"r"}]}}}`},
		{"/l3vpn:vpn-instances", "content=config", `{"l3vpn:vpn-instances":{"vpn-instance":[{"ipv4-family":{"route-distinguisher":["1:1"]},"vpn-instance-name":"r"}]}}`},
		{"/l3vpn:vpn-instances", "content=nonconfig", `{"l3vpn:vpn-instances":{"vpn-instance":[{"l3vni":9,"vpn-instance-name":"r"}]}}`},
	} {
		p, err := datatree.ParsePath(root, c.path, false)
		if err != nil {
			t.Fatal(err)
		}
		q, err := datatree.ParseQuery(p.Target(root), c.query)
		if err != nil {
			t.Errorf("%s?%s: %v", c.path, c.query, err)
			continue
		}
		value, err := datatree.Get(tree(t, instances), p)
		if err != nil {
			t.Fatal(err)
		}
		if got := text(t, datatree.Qualify(p.Target(root), q.Select(p.Target(root), value))); got != c.want {
			t.Errorf("%s?%s:\ngot  %s\nwant %s", c.path, c.query, got, c.want)
		}
	}
}

func TestEdits(t *testing.T) {
	const container = "/elan:elan-instances"
	for name, c := range map[string]struct {
		path string
		edit datatree.Edit
		body string
		want string // of elan-instances
	}{
		"create an entry":   {container, datatree.Create, `{"elan:elan-instance":[{"elan-instance-name":"c"}]}`, `a7first b c`},
		"create a leaf":     {container + "/elan-instance=b", datatree.Create, `{"elan:description":"new"}`, `a7first bnew`},
		"replace all":       {container, datatree.Replace, `{"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"c"}]}}`, `c`},
		"replace an entry":  {container + "/elan-instance=a", datatree.Replace, `{"elan:elan-instance":[{"elan-instance-name":"a"}]}`, `a b`},
		"replace a leaf":    {container + "/elan-instance=a/description", datatree.Replace, `{"elan:description":"new"}`, `a7new b`},
		"merge an entry":    {container + "/elan-instance=a", datatree.Merge, `{"elan:elan-instance":[{"elan-instance-name":"a","description":"new"}]}`, `a7new b`},
		"merge a container": {container, datatree.Merge, `{"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"b","description":"new"},{"elan-instance-name":"c"}]}}`, `a7first bnew c`},
		"merge everything":  {"", datatree.Merge, `{"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"c"}]}}`, `a7first b c`},
		"delete an entry":   {container + "/elan-instance=a", datatree.Delete, ``, `b`},
		"delete a leaf":     {container + "/elan-instance=a/segmentation-id", datatree.Delete, ``, `afirst b`},
		"delete all":        {container, datatree.Delete, ``, ``},
	} {
		t.Run(name, func(t *testing.T) {
			data := tree(t, instances)
			p, err := datatree.ParsePath(root, c.path, false)
			if err != nil {
				t.Fatal(err)
			}
			var child *datatree.Node
			var value any
			if c.edit != datatree.Delete {
				body, err := datatree.Decode([]byte(c.body))
				if err != nil {
					t.Fatal(err)
				}
				if child, value, _, err = datatree.Message(root, p, c.edit, body, false); err != nil {
					t.Fatal(err)
				}
			}
			if c.edit != datatree.Create {
				child = nil
			}
			if _, err := datatree.Apply(root, data, p, c.edit, child, value); err != nil {
				t.Fatal(err)
			}
			var got []string
			container, _ := data["elan-instances"].(map[string]any)
			list, _ := container["elan-instance"].([]any)
			for _, e := range list {
				entry := e.(map[string]any)
				words := entry["elan-instance-name"].(string)
				if number, there := entry["segmentation-id"].(json.Number); there {
					words += number.String()
				}
				if description, there := entry["description"].(string); there {
					words += description
				}
				got = append(got, words)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func FuzzPath(f *testing.F) {
	for _, p := range []string{"/pod:coe/pods=a", "/pod:coe/pods/a%2Fb", "/a:b=%", "//=,=", "/elan:elan-instances/elan-instance=%2e%2e%2f,"} {
		f.Add(p, false)
		f.Add(p, true)
	}
	f.Fuzz(func(t *testing.T, text string, former bool) {
		p, err := datatree.ParsePath(root, text, former)
		if err != nil {
			return
		}
		again, err := datatree.ParsePath(root, p.URI(), false)
		if err != nil || again.String() != p.String() {
			t.Errorf("%q is %s, and again %s: %v", text, p, again, err)
		}
	})
}

func FuzzBody(f *testing.F) {
	for _, b := range []string{instances, `{"ietf-restconf:data":{}}`, `[[[[`, `{"a":1e999}`, `{"pod:coe":{"pods":[{"uid":null}]}}`, "\xff"} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, body string) {
		value, err := datatree.Decode([]byte(body))
		if err != nil {
			return
		}
		checked, err := datatree.Check(root, value, "")
		if err != nil {
			return
		}
		again, err := datatree.Check(root, datatree.Qualify(root, checked)["ietf-restconf:data"], "")
		if err != nil || text(t, again) != text(t, checked) {
			t.Errorf("%s, and again %s: %v", text(t, checked), text(t, again), err)
		}
	})
}
