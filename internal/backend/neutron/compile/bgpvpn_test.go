// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"slices"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// reasons are those of a Router's problems.
func reasons(s *resource.Set, router string) (list []string) {
	for _, p := range s.Problems {
		if p.Object == "Router "+router {
			list = append(list, p.Reason)
		}
	}
	return list
}

// A Router's problem says that it does not get routes that it is to have. What it exports is a
// problem of those that import it.
func TestTargets(t *testing.T) {
	there, missing := resource.Extension{}, resource.Extension{Missing: true}
	broken := resource.Extension{Reason: "NeutronFailed", Why: "it fails"}
	private := func(imports, exports []string, of ...string) intent.Router {
		return intent.Router{Name: "red", ID: 2, ImportTargets: imports, ExportTargets: exports, Imports: of}
	}
	shared := private(nil, []string{"64512:7"})
	shared.Shared = true
	for _, tc := range []struct {
		name       string
		router     intent.Router
		extension  resource.Extension
		made       bool
		wantReason string
	}{
		{"no targets", private(nil, nil), there, false, ""},
		{"no targets, and BGPVPNs that cannot be read", private(nil, nil), broken, false, ""},
		{"only exports", private(nil, []string{"64512:7"}), there, true, ""},
		{"only exports, no BGPVPNs", private(nil, []string{"64512:7"}), missing, false, ""},
		{"only exports, and BGPVPNs that cannot be read", private(nil, []string{"64512:7"}), broken, false, "NeutronFailed"},
		{"its own target alone, no BGPVPNs", private([]string{"64512:7"}, []string{"64512:7"}), missing, false, ""},
		{"a target of none", private([]string{"64512:7"}, nil), there, true, ""},
		{"a target of none, no BGPVPNs", private([]string{"64512:7"}, nil), missing, false, "ImportsUnsupported"},
		{"another Router's", private([]string{"64512:6"}, nil, "blue"), there, true, ""},
		{"another Router's, no BGPVPNs", private([]string{"64512:6"}, nil, "blue"), missing, false, "ImportsUnsupported"},
		{"a shared Router's", private([]string{"64512:5"}, nil, "lab"), there, true, "ImportsUnsupported"},
		{"shared", shared, there, false, "TargetsUnsupported"},
		{"shared, no BGPVPNs", shared, missing, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set := Compile(stateOf(func(o *intent.Objects) {
				o.Routers = append(o.Routers, tc.router, intent.Router{Name: "blue", ID: 3, ExportTargets: []string{"64512:6"}},
					intent.Router{Name: "lab", ID: 4, Shared: true, ExportTargets: []string{"64512:5"}})
			}), Options{BGPVPNs: tc.extension})
			vpn := resource.Ref{Kind: resource.BGPVPN, Key: "Router/red"}
			_, made := set.Get(vpn)
			_, placed := set.Get(resource.AssociationOf(vpn, RouterRef("red")))
			if made != tc.made || placed != tc.made {
				t.Errorf("a BGPVPN: %v, the router in it: %v", made, placed)
			}
			var want []string
			if tc.wantReason != "" {
				want = []string{tc.wantReason}
			}
			if got := reasons(set, "red"); !slices.Equal(got, want) {
				t.Errorf("problems %v, want %v", got, want)
			}
		})
	}
}

// A route of the Router default is no problem of it.
func TestRoutesOfDefault(t *testing.T) {
	set := Compile(stateOf(func(o *intent.Objects) {
		o.Routers[0].Shared = true
		o.Routers[0].Routes = []intent.Route{{Destination: prefix("192.168.50.0/24"), NextHop: addr("10.244.1.9")}}
	}), Options{})
	if got := reasons(set, "default"); len(got) > 0 {
		t.Errorf("problems %v", got)
	}
}
