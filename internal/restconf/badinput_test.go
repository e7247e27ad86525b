// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/internal/restconf/mapping"
)

// TestBadInput sends what is wrong: each answer is an error of RFC 8040 that names the node, and
// nothing is written.
func TestBadInput(t *testing.T) {
	const pools, instances = "/restconf/data/dhcp_allocation_pool:dhcp_allocation_pool", "/restconf/data/elan:elan-instances"
	const interfaces, pods, vpns = "/restconf/data/elan:elan-interfaces", "/restconf/data/pod:coe", "/restconf/data/l3vpn:vpn-instances"
	const uid = "11111111-2222-3333-4444-555555555555"
	pool := func(text string) string {
		return `{"dhcp_allocation_pool:network":[{"network-id":"lan","allocation-pool":[` + text + `]}]}`
	}
	instance := func(text string) string {
		return `{"elan:elan-instance":[{"elan-instance-name":"lan",` + text + `}]}`
	}
	pod := func(text string) string { return `{"pod:pods":[{"uid":"` + uid + `",` + text + `}]}` }
	for name, c := range map[string]struct {
		method, path, body string
		code               int
		tag, says          string
	}{
		"not JSON":                    {"POST", pools, `{"dhcp_`, 400, "malformed-message", "no JSON"},
		"empty body":                  {"POST", pools, ``, 400, "malformed-message", "no JSON"},
		"two values":                  {"POST", pools, `{} {}`, 400, "malformed-message", "follows"},
		"not UTF-8":                   {"POST", pools, "{\"a\xff\":1}", 400, "malformed-message", "UTF-8"},
		"10,000 deep":                 {"POST", pools, strings.Repeat(`{"a":`, 10000) + "1" + strings.Repeat("}", 10000), 413, "too-big", "levels"},
		"10 MB":                       {"POST", pools, `{"a":"` + strings.Repeat("x", 10<<20) + `"}`, 413, "too-big", "larger"},
		"member twice":                {"POST", pools, `{"dhcp_allocation_pool:network":[],"dhcp_allocation_pool:network":[]}`, 400, "malformed-message", "twice"},
		"number":                      {"POST", pools, `7`, 400, "malformed-message", "no JSON object"},
		"null":                        {"POST", pools, `{"dhcp_allocation_pool:network":null}`, 400, "invalid-value", "network"},
		"list is an object":           {"POST", pools, `{"dhcp_allocation_pool:network":{}}`, 400, "invalid-value", "is a list"},
		"no key":                      {"POST", pools, `{"dhcp_allocation_pool:network":[{}]}`, 400, "missing-element", "network-id"},
		"key twice":                   {"POST", pools, `{"dhcp_allocation_pool:network":[{"network-id":"a"},{"network-id":"a"}]}`, 400, "invalid-value", "two entries"},
		"unknown node":                {"POST", pools, pool(`{"subnet":"10.0.0.0/16","color":"red"}`), 400, "unknown-element", "color"},
		"foreign module":              {"POST", pools, `{"elan:network":[]}`, 400, "unknown-element", "elan:network"},
		"wrong type":                  {"POST", pools, pool(`{"subnet":10}`), 400, "invalid-value", "allocation-pool/subnet"},
		"no prefix":                   {"POST", pools, pool(`{"subnet":"10.0.0.0/33"}`), 400, "invalid-value", "no prefix"},
		"bits after the prefix":       {"POST", pools, pool(`{"subnet":"10.0.0.1/24"}`), 400, "invalid-value", "no prefix"},
		"gateway outside":             {"POST", pools, pool(`{"subnet":"10.0.0.0/24","gateway":"10.0.1.1"}`), 400, "invalid-value", "gateway"},
		"range outside":               {"POST", pools, pool(`{"subnet":"10.0.0.0/24","allocate-from":"10.0.1.1","allocate-to":"10.0.1.2"}`), 400, "invalid-value", "lie in the subnet"},
		"range backwards":             {"POST", pools, pool(`{"subnet":"10.0.0.0/24","allocate-from":"10.0.0.9","allocate-to":"10.0.0.2"}`), 400, "invalid-value", "after"},
		"half a range":                {"POST", pools, pool(`{"subnet":"10.0.0.0/24","allocate-from":"10.0.0.9"}`), 400, "invalid-value", "together"},
		"DNS of the other family":     {"POST", pools, pool(`{"subnet":"10.0.0.0/24","dns-servers":["fd00::1"]}`), 400, "invalid-value", "dns-servers"},
		"no pool":                     {"POST", pools, pool(``), 400, "invalid-value", "allocation-pool"},
		"no name of an object":        {"POST", pools, `{"dhcp_allocation_pool:network":[{"network-id":"A b/c","allocation-pool":[{"subnet":"10.0.0.0/24"}]}]}`, 400, "invalid-value", "network-id"},
		"another key than the path":   {"PUT", pools + "/network=wan", pool(`{"subnet":"10.0.0.0/24"}`), 400, "invalid-value", "another one"},
		"list without key":            {"PUT", pools + "/network", pool(`{"subnet":"10.0.0.0/24"}`), 400, "missing-element", "network-id"},
		"too many keys":               {"GET", pools + "/network=a,b", ``, 400, "invalid-value", "network-id"},
		"key of no list":              {"GET", pools + "=a", ``, 400, "invalid-value", "no list"},
		"unknown model":               {"GET", "/restconf/data/foo:bar", ``, 404, "unknown-element", "foo:bar"},
		"model without its module":    {"GET", "/restconf/data/coe", ``, 404, "unknown-element", "pod:coe"},
		"absent entry":                {"GET", pools + "/network=a", ``, 404, "invalid-value", "network-id='a'"},
		"delete absent":               {"DELETE", pools + "/network=a", ``, 404, "invalid-value", "network-id='a'"},
		"patch absent":                {"PATCH", pools + "/network=lan", pool(`{"subnet":"10.0.0.0/24"}`), 404, "invalid-value", "lan"},
		"path traversal":              {"GET", "/restconf/data/../../etc/passwd", ``, 404, "unknown-element", ".."},
		"path traversal, escaped":     {"GET", "/restconf/data/%2e%2e%2f%2e%2e%2fetc", ``, 404, "unknown-element", "../../etc"},
		"slash in a key":              {"GET", pools + "/network=a%2Fb%20c", ``, 404, "invalid-value", "a/b c"},
		"path not UTF-8":              {"GET", pools + "/network=%ff", ``, 400, "malformed-message", "UTF-8"},
		"path with NUL":               {"GET", pools + "/network=%00", ``, 400, "malformed-message", "UTF-8"},
		"long path":                   {"GET", pools + "/network=" + strings.Repeat("a", 5000), ``, 414, "too-big", "too long"},
		"child of a leaf":             {"GET", pools + "/network=a/network-id/b", ``, 404, "unknown-element", "/b"},
		"depth":                       {"GET", pools + "?depth=0", ``, 400, "invalid-value", "depth"},
		"content":                     {"GET", pools + "?content=some", ``, 400, "invalid-value", "content"},
		"fields":                      {"GET", pools + "?fields=network(", ``, 400, "unknown-element", "fields"},
		"fields, deep":                {"GET", pools + "?fields=" + strings.Repeat("network(", 5000), ``, 400, "unknown-element", "fields"},
		"query not percent-encoded":   {"GET", pools + "?depth=%zz", ``, 400, "invalid-value", "percent-encoded"},
		"unknown parameter":           {"GET", pools + "?filter=a", ``, 400, "invalid-value", "filter"},
		"parameter of an edit":        {"PUT", pools + "/network=lan?point=a", pool(`{"subnet":"10.0.0.0/24"}`), 400, "invalid-value", "query parameters"},
		"replace everything":          {"PUT", "/restconf/data", `{"ietf-restconf:data":{}}`, 405, "operation-not-supported", "PUT"},
		"unknown method":              {"TRACE", pools, ``, 405, "operation-not-supported", "TRACE"},
		"write operation":             {"PUT", "/restconf/operational/pod:coe", `{"pod:coe":{}}`, 405, "operation-not-supported", "PUT"},
		"write a library":             {"PUT", "/restconf/data/ietf-yang-library:modules-state", `{}`, 405, "operation-not-supported", "PUT"},
		"write a node":                {"PUT", "/restconf/data/k8s-node:k8s-nodes-info/k8s-nodes=" + uid, `{"k8s-node:k8s-nodes":[{"uid":"` + uid + `"}]}`, 501, "operation-not-supported", "k8s-nodes"},
		"no such type":                {"POST", instances, instance(`"segment-type":"elan:segment-type-gre"`), 501, "operation-not-supported", "segment-type"},
		"unknown identity":            {"POST", instances, instance(`"segment-type":"elan:wifi"`), 400, "invalid-value", "elan-instance"},
		"flat with a number":          {"POST", instances, instance(`"segment-type":"elan:segment-type-flat","segmentation-id":7`), 400, "invalid-value", "segmentation-id"},
		"number too large":            {"POST", instances, instance(`"segmentation-id":16777216`), 400, "invalid-value", "elan-instance"},
		"no number":                   {"POST", instances, instance(`"segmentation-id":"seven"`), 400, "invalid-value", "segmentation-id"},
		"fraction":                    {"POST", instances, instance(`"segmentation-id":7.5`), 400, "invalid-value", "segmentation-id"},
		"no boolean":                  {"POST", instances, instance(`"external":1`), 400, "invalid-value", "external"},
		"interface of no instance":    {"POST", interfaces, `{"elan:elan-interface":[{"name":"a:b"}]}`, 400, "missing-element", "elan-instance-name"},
		"interface of no namespace":   {"POST", interfaces, `{"elan:elan-interface":[{"name":"vm","elan-instance-name":"lan"}]}`, 400, "invalid-value", "NAMESPACE:NAME"},
		"two MACs":                    {"POST", interfaces, `{"elan:elan-interface":[{"name":"a:b","elan-instance-name":"lan","static-mac-entries":[{"mac-address":"0a:00:00:00:00:01"},{"mac-address":"0a:00:00:00:00:02"}]}]}`, 501, "operation-not-supported", "static-mac-entries"},
		"no MAC":                      {"POST", interfaces, `{"elan:elan-interface":[{"name":"a:b","elan-instance-name":"lan","static-mac-entries":[{"mac-address":"wifi"}]}]}`, 400, "invalid-value", "elan-interface"},
		"no UUID":                     {"POST", pods, `{"pod:pods":[{"uid":"seven","interface":[{"uid":"` + uid + `"}]}]}`, 400, "invalid-value", "pods"},
		"pod without interface":       {"POST", pods, pod(`"name":"a"`), 400, "missing-element", "interface"},
		"pod with a bad address":      {"POST", pods, pod(`"interface":[{"uid":"` + uid + `","ip-address":"10.0.0.256"}]`), 400, "invalid-value", "ip-address"},
		"pod with a bad MAC":          {"POST", pods, pod(`"port-mac-address":"x","interface":[{"uid":"` + uid + `"}]`), 400, "invalid-value", "port-mac-address"},
		"pod with a bad namespace":    {"POST", pods, pod(`"network-NS":"../x","interface":[{"uid":"` + uid + `"}]`), 400, "invalid-value", "network-NS"},
		"l2 VPN":                      {"POST", vpns, `{"l3vpn:vpn-instance":[{"vpn-instance-name":"a","type":"l2"}]}`, 501, "operation-not-supported", "type"},
		"no route target":             {"POST", vpns, `{"l3vpn:vpn-instance":[{"vpn-instance-name":"a","ipv4-family":{"vpnTargets":{"vpnTarget":[{"vrfRTValue":"x","vrfRTType":"both"}]}}}]}`, 400, "invalid-value", "vpn-instance"},
		"route target of no kind":     {"POST", vpns, `{"l3vpn:vpn-instance":[{"vpn-instance-name":"a","ipv4-family":{"vpnTargets":{"vpnTarget":[{"vrfRTValue":"1:1"}]}}}]}`, 400, "missing-element", "vrfRTType"},
		"families that differ":        {"POST", vpns, `{"l3vpn:vpn-instance":[{"vpn-instance-name":"a","ipv4-family":{"route-distinguisher":["1:1"]},"ipv6-family":{"route-distinguisher":["1:2"]}}]}`, 501, "operation-not-supported", "ipv6-family"},
		"state":                       {"POST", vpns, `{"l3vpn:vpn-instance":[{"vpn-instance-name":"a","l3vni":7}]}`, 400, "invalid-value", "l3vni"},
		"key cannot be changed":       {"PUT", vpns + "/vpn-instance=red/vpn-instance-name", `{"l3vpn:vpn-instance-name":"blue"}`, 400, "invalid-value", "is a key"},
		"key cannot be deleted":       {"DELETE", vpns + "/vpn-instance=red/vpn-instance-name", ``, 400, "invalid-value", "is a key"},
		"one bad entry beside a good": {"POST", pools, `{"dhcp_allocation_pool:network":[{"network-id":"good","allocation-pool":[{"subnet":"10.0.0.0/24"}]},{"network-id":"bad"}]}`, 400, "invalid-value", "bad"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			got := s.do(c.method, c.path, c.body)
			got.refuses(t, c.code, c.tag, c.says)
			if len(got.body) > 2000 {
				t.Errorf("an answer of %d bytes", len(got.body))
			}
			if s.api.version != 0 {
				t.Error("something was written")
			}
		})
	}
}

func TestMediaTypes(t *testing.T) {
	s := newSite(t)
	const path = "/restconf/data/l3vpn:vpn-instances"
	const body = `{"l3vpn:vpn-instance":[{"vpn-instance-name":"red"}]}`
	s.want(415, "POST", path, body, "Content-Type", "application/yang-data+xml")
	s.want(415, "POST", path, body, "Content-Type", "")
	s.want(415, "POST", path, body, "Content-Type", "text/plain")
	s.want(406, "GET", path, "", "Accept", "application/yang-data+xml")
	created := s.want(201, "POST", path, body, "Content-Type", "application/yang-data+json; charset=utf-8")
	if got := created.head.Get("Location"); got != "https://example.com/restconf/data/l3vpn:vpn-instances/vpn-instance=red" {
		t.Error(got)
	}
	for accept, want := range map[string]string{"": yangData, "*/*": yangData, "application/json": plainJSON, "text/html, application/yang-data+json;q=0.5": yangData} {
		if got := s.want(200, "GET", path, "", "Accept", accept).head.Get("Content-Type"); got != want {
			t.Errorf("Accept %q: %s", accept, got)
		}
	}
	if got := s.want(200, "HEAD", path, ""); got.body != "" || got.head.Get("ETag") == "" {
		t.Errorf("HEAD: %+v", got)
	}
	if got := s.want(200, "OPTIONS", path, "").head; got.Get("Allow") != "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT" || got.Get("Accept-Patch") != yangData {
		t.Errorf("OPTIONS: %v", got)
	}
}

func TestDiscovery(t *testing.T) {
	s := newSite(t)
	if got := s.as("", "GET", "/.well-known/host-meta", ""); got.code != 200 || !strings.Contains(got.body, "<Link rel='restconf' href='/restconf'/>") {
		t.Errorf("%+v", got)
	}
	for path, want := range map[string]string{
		"/restconf":                      `{"ietf-restconf:restconf":{"data":{},"operations":{},"yang-library-version":"2016-06-21"}}`,
		"/rests/yang-library-version":    `{"ietf-restconf:yang-library-version":"2016-06-21"}`,
		"/restconf/operations":           `{"ietf-restconf:operations":{}}`,
		"/restconf/data/pod:coe":         `{"pod:coe":{}}`,
		"/restconf/data/pod:coe?depth=1": `{"pod:coe":{}}`,
	} {
		s.same(s.want(200, "GET", path, "").body, want)
	}
	if got := s.want(200, "GET", "/restconf/data/ietf-yang-library:modules-state", "").body; !strings.Contains(got, `"urn:opendaylight:coe:northbound:pod"`) {
		t.Error(got)
	}
	s.want(404, "GET", "/", "")
	s.want(404, "GET", "/restconfig/data", "")
}

func TestWhatClientsMay(t *testing.T) {
	s := newSite(t)
	const path = "/restconf/data/elan:elan-interfaces"
	port := func(name string) string {
		return `{"elan:elan-interface":[{"name":"` + name + `","elan-instance-name":"lan"}]}`
	}
	for _, token := range []string{"", "wrong"} {
		if got := s.as(token, "GET", path, ""); got.code != 401 || len(got.head.Values("WWW-Authenticate")) != 2 {
			t.Errorf("token %q: %+v", token, got)
		}
	}
	s.want(201, "POST", path, port("b:vm"))
	if got := s.as("ports-a", "POST", path, port("b:other")); got.code != 403 || !strings.Contains(got.body, "may not create ports b/other") {
		t.Errorf("%+v", got)
	}
	if got := s.as("ports-a", "POST", path, port("a:vm")); got.code != 201 {
		t.Errorf("%+v", got)
	}
	// It sees its own namespace alone, and deletes no more by replacing all.
	if got := s.as("ports-a", "GET", path, ""); got.code != 200 || strings.Contains(got.body, "b:vm") || !strings.Contains(got.body, "a:vm") {
		t.Errorf("%+v", got)
	}
	if got := s.as("ports-a", "GET", path+"/elan-interface=b%3Avm", ""); got.code != 404 {
		t.Errorf("%+v", got)
	}
	if got := s.as("ports-a", "PUT", path, `{"elan:elan-interfaces":{}}`); got.code != 403 || len(s.api.world.Ports) != 2 {
		t.Errorf("%+v", got)
	}
	// That an edit changes nothing would say what is there.
	if got := s.as("ports-a", "PUT", path+"/elan-interface=b%3Avm", port("b:vm")); got.code != 403 {
		t.Errorf("%+v", got)
	}
	if got := s.as("ports-a", "PUT", path+"/elan-interface=a%3Avm", port("a:vm")); got.code != 204 {
		t.Errorf("%+v", got)
	}
	if got := s.as("ports-a", "GET", "/restconf/data/l3vpn:vpn-instances", ""); got.code != 403 {
		t.Errorf("%+v", got)
	}
	if got := s.as("reader", "DELETE", path+"/elan-interface=b%3Avm", ""); got.code != 403 {
		t.Errorf("%+v", got)
	}
	if got := s.as("reader", "GET", path, ""); got.code != 200 || !strings.Contains(got.body, "b:vm") {
		t.Errorf("%+v", got)
	}
}

// TestStrangersAreBounded tries many wrong tokens: the API is not asked about each.
func TestStrangersAreBounded(t *testing.T) {
	s := newSite(t)
	refused := 0
	for i := range 100 {
		if s.as("wrong"+string(rune('a'+i%26))+strings.Repeat("x", i), "GET", "/restconf", "").code == 429 {
			refused++
		}
	}
	if refused < 50 {
		t.Errorf("only %d of 100 were refused", refused)
	}
}

// TestLists compares the lists with their models: each is reachable.
func TestLists(t *testing.T) {
	s := newSite(t)
	for name, l := range mapping.Lists() {
		d := newDatastore(slog.New(slog.DiscardHandler), s.api, nil)
		node := d.schema.Children[name]
		if node == nil || d.node(l) == nil {
			t.Errorf("%s/%s is not in the models", name, l.Name)
			continue
		}
		s.want(200, "GET", "/restconf/data/"+node.Module+":"+name, "")
		s.want(200, "GET", "/restconf/operational/"+node.Module+":"+name, "")
		s.want(200, "GET", "/restconf/ds/ietf-datastores:operational/"+node.Module+":"+name, "")
	}
	s.api.world.Nodes["worker1"] = &corev1.Node{}
	s.api.world.Nodes["worker1"].UID = types.UID("11111111-2222-3333-4444-555555555555")
	s.same(s.want(200, "GET", "/restconf/data/k8s-node:k8s-nodes-info", "").body,
		`{"k8s-node:k8s-nodes-info":{"k8s-nodes":[{"uid":"11111111-2222-3333-4444-555555555555","host-name":"worker1"}]}}`)
}

func FuzzRequests(f *testing.F) {
	for _, path := range []string{
		"/restconf/data/pod:coe/pods=a/interface=b", "/restconf/config/pod:coe/pods/a%2Fb", "/rests/data/elan:elan-instances/elan-instance=a%20b,c",
		"/restconf/data/%2e%2e/x", "/restconf/data?fields=pod:coe(pods)&depth=2", "/restconf//data//", "/restconf/data/l3vpn:vpn-instances?content=nonconfig",
	} {
		for _, method := range []string{"GET", "PUT", "POST", "PATCH", "DELETE"} {
			f.Add(method, path, samplePod)
			f.Add(method, path, samplePool)
		}
	}
	f.Add("POST", "/restconf/config/pod:coe", samplePod)
	for _, o := range wholeObjects {
		f.Add("PUT", o.path(), o.message())
		f.Add("POST", o.parent(), o.message())
		f.Add("DELETE", strings.ReplaceAll(o.path(), "=", "/"), "")
	}
	f.Add("PATCH", "/restconf/data", `{"ietf-restconf:data":{"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"a"}]}}}`)
	f.Fuzz(func(t *testing.T, method, path, body string) {
		r, ok := newRequest(method, path, body)
		if !ok {
			return
		}
		s := newSite(t)
		got := s.serve(r)
		if got.code == 503 || got.code == 500 || got.code == 0 {
			t.Errorf("%s %q %q: %d %s", method, path, body, got.code, got.body)
		}
		if strings.Contains(got.body, "{") && !json.Valid([]byte(got.body)) {
			t.Errorf("%s %q: %s", method, path, got.body)
		}
	})
}

// refuses expects one error, with a tag, and with a text in its path or message.
func (r reply) refuses(t *testing.T, code int, tag, says string) {
	t.Helper()
	var message struct {
		Errors struct {
			Error []map[string]string `json:"error"`
		} `json:"ietf-restconf:errors"`
	}
	if err := json.Unmarshal([]byte(r.body), &message); err != nil || len(message.Errors.Error) != 1 {
		t.Fatalf("%d %.300s: %v", r.code, r.body, err)
	}
	e := message.Errors.Error[0]
	if r.code != code || e["error-tag"] != tag || !strings.Contains(e["error-path"]+" "+e["error-message"], says) {
		t.Errorf("%d %.500s, want %d %s %s", r.code, r.body, code, tag, says)
	}
}
