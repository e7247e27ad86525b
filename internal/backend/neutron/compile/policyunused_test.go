// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// groupsAndRules are the security groups of a Set, and the keys of their rules.
func groupsAndRules(s *resource.Set) map[string][]string {
	all := map[string][]string{}
	for _, g := range s.All(resource.SecurityGroup) {
		all[g.Ref.String()] = nil
	}
	for _, r := range s.All(resource.SecurityGroupRule) {
		group := r.Fixed["security_group_id"].(resource.Ref).String()
		all[group] = append(all[group], r.Key)
	}
	return all
}

// Groups that are there, and their rules, stay as they are when all pods go; they are not made for
// none, and go with what they are made of.
func TestGroupsWithoutPorts(t *testing.T) {
	for _, supplemented := range []bool{false, true} {
		full := Compile(stateOf(projects), Options{Supplemented: supplemented})
		var refs []resource.Ref
		for _, g := range full.All(resource.SecurityGroup) {
			refs = append(refs, g.Ref)
		}
		options := Options{Supplemented: supplemented, Groups: refs}
		noPods := func(o *intent.Objects) {
			projects(o)
			o.Ports, o.Subjects = nil, nil
		}
		if diff := cmp.Diff(groupsAndRules(full), groupsAndRules(Compile(stateOf(noPods), options))); diff != "" {
			t.Errorf("without pods (-with +without):\n%s", diff)
		}
		options.Groups = nil
		if list := groupsAndRules(Compile(stateOf(noPods), options)); len(list) != 3 {
			t.Errorf("made for no pod: %v", list)
		}
		options.Groups = refs
		left := Compile(stateOf(func(o *intent.Objects) {
			noPods(o)
			o.Rules, o.Nodes = nil, nil
		}), options)
		if i := slices.IndexFunc(left.All(resource.SecurityGroup), func(r resource.Resource) bool {
			return !strings.HasPrefix(r.Key, "Cluster/")
		}); i >= 0 {
			t.Errorf("stays without policies and nodes: %v", groupsAndRules(left))
		}
	}
}
