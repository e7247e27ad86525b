// SPDX-License-Identifier: Apache-2.0

package kuryr

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/intent"
)

func read(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestReadPort(t *testing.T) {
	good := Port{
		Namespace: "shop", Name: "web-0", PodUID: "8a5c", Node: "worker1", ID: "a28c7404",
		NetworkID: "0b1c", MAC: intent.MAC{0xfa, 0x16, 0x3e, 1, 2, 3},
		Addresses: []netip.Addr{netip.MustParseAddr("10.11.0.15")},
	}
	nested := good
	nested.Unusable = "its interface is a VIFVlanNested, which is part of another port"
	for name, tc := range map[string]struct {
		replace, by string
		want        Port
		none        bool
		err         string
	}{
		"of a pod":                  {want: good},
		"of a node that is a guest": {replace: "VIFOpenVSwitch", by: "VIFVlanNested", want: nested},
		"further interface alone":   {replace: `"default": true`, by: `"default": false`, none: true},
		"no JSON":                   {replace: `"metadata"`, by: `metadata`, err: "invalid character"},
		"no id":                     {replace: `"a28c7404"`, by: `""`, err: "have to be named"},
		"no pod":                    {replace: `"8a5c"`, by: `""`, err: "have to be named"},
		"no MAC":                    {replace: "fa:16:3e:01:02:03", by: "fa:16", err: "KuryrPort shop/web-0: interface eth0"},
		"an address that is none":   {replace: "10.11.0.15", by: "10.11.0.500", err: "10.11.0.500"},
		"no address":                {replace: `"ips"`, by: `"routes"`, err: "no address"},
		"a list for an object":      {replace: `"vifs": {`, by: `"vifs": [], "were": {`, err: "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok, err := ReadPort([]byte(strings.Replace(read(t, "port.json"), tc.replace, tc.by, 1)))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%v, want %q", err, tc.err)
				}
				return
			}
			if err != nil || ok == tc.none {
				t.Fatalf("%v, %v", ok, err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateComparable(netip.Addr{})); ok && diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadNetwork(t *testing.T) {
	for name, tc := range map[string]struct {
		object string
		want   Network
		none   bool
		err    string
	}{
		"made": {
			object: `{"metadata": {"name": "shop", "namespace": "shop"}, "spec": {"nsName": "shop", "projectId": "p"}, "status":
				{"netId": "n", "subnetId": "s", "subnetCIDR": "10.11.0.0/26", "routerId": "r", "populated": true}}`,
			want: Network{"shop", "n", "s", "r", netip.MustParsePrefix("10.11.0.0/26")},
		},
		"not made":     {object: `{"metadata": {"namespace": "shop"}, "status": {}}`, none: true},
		"made in part": {object: `{"metadata": {"namespace": "shop"}, "status": {"netId": "n"}}`, none: true},
		"no prefix": {
			object: `{"metadata": {"namespace": "shop"}, "status": {"netId": "n", "subnetId": "s", "subnetCIDR": "10.11/26"}}`,
			err:    "KuryrNetwork shop: ",
		},
		"no object": {object: `[]`, err: "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok, err := ReadNetwork([]byte(tc.object))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%v, want %q", err, tc.err)
				}
				return
			}
			if err != nil || ok == tc.none || ok && got != tc.want {
				t.Errorf("%+v, %v, %v", got, ok, err)
			}
		})
	}
}

func TestReadLoadBalancer(t *testing.T) {
	const good = `{"metadata": {"name": "web", "namespace": "shop"}, "spec": {"ip": "10.2.0.5", "type": "LoadBalancer"}, "status": {
		"loadbalancer": {"id": "l", "ip": "10.2.0.5", "port_id": "vip"},
		"service_pub_ip_info": {"ip_id": "f", "ip_addr": "172.24.4.7", "alloc_method": "pool"}}}`
	made := LoadBalancer{Namespace: "shop", Name: "web", FloatingIP: "f", Address: netip.MustParseAddr("172.24.4.7")}
	users := made
	users.Users = true
	for name, tc := range map[string]struct {
		replace, by string
		want        LoadBalancer
		none        bool
		err         string
	}{
		"made by Kuryr":        {want: made},
		"of a user":            {replace: `"pool"`, by: `"user"`, want: users},
		"it is not said whose": {replace: `"alloc_method"`, by: `"was"`, want: users},
		"no floating IP":       {replace: `"service_pub_ip_info"`, by: `"was"`, none: true},
		"none any more":        {replace: `{"ip_id": "f", "ip_addr": "172.24.4.7", "alloc_method": "pool"}`, by: `null`, none: true},
		"an empty one":         {replace: `"ip_id": "f", "ip_addr": "172.24.4.7"`, by: `"ip_id": "", "ip_addr": ""`, none: true},
		"no status":            {replace: `"status"`, by: `"was"`, none: true},
		"no id":                {replace: `"ip_id": "f"`, by: `"ip_id": ""`, err: "KuryrLoadBalancer shop/web: the id of the floating IP 172.24.4.7"},
		"no address":           {replace: `172.24.4.7`, by: ``, err: "KuryrLoadBalancer shop/web: ParseAddr"},
		"an address of none":   {replace: `172.24.4.7`, by: `172.24.4.777`, err: "172.24.4.777"},
		"no JSON":              {replace: `{`, by: `[`, err: "KuryrLoadBalancer: invalid character"},
		"text for an object":   {replace: `{"ip_id"`, by: `"none", "was": {"ip_id"`, err: "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok, err := ReadLoadBalancer([]byte(strings.Replace(good, tc.replace, tc.by, 1)))
			if tc.err != "" {
				if err == nil || ok || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%v, %v, want %q", ok, err, tc.err)
				}
				return
			}
			if err != nil || ok == tc.none || ok && got != tc.want {
				t.Errorf("%+v, %v, %v", got, ok, err)
			}
		})
	}
}

// What is read has all that its use takes for granted.
func FuzzReadLoadBalancer(f *testing.F) {
	f.Add([]byte(`{"metadata": {"name": "web", "namespace": "shop"}, "status": {"service_pub_ip_info": {"ip_id": "f", "ip_addr": "172.24.4.7"}}}`))
	f.Add([]byte(`{"status": {"service_pub_ip_info": {}}}`))
	f.Fuzz(func(t *testing.T, object []byte) {
		l, ok, err := ReadLoadBalancer(object)
		if ok && (err != nil || l.FloatingIP == "" || !l.Address.IsValid()) {
			t.Errorf("%+v, %v", l, err)
		}
	})
}

// What is read has all that its use takes for granted.
func FuzzReadPort(f *testing.F) {
	f.Add([]byte(read(f, "port.json")))
	f.Add([]byte(`{"status": {"vifs": {"eth0": {"default": true}}}}`))
	f.Fuzz(func(t *testing.T, object []byte) {
		p, ok, err := ReadPort(object)
		if ok && (err != nil || p.ID == "" || p.NetworkID == "" || p.PodUID == "" || len(p.Addresses) == 0) {
			t.Errorf("%+v, %v", p, err)
		}
	})
}
