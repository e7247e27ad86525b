// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

// Of groups that rules name, those are told that do not exist, in the group's namespace or in the
// one that is named.
func TestMissingGroups(t *testing.T) {
	o := &v1alpha1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	for _, remote := range []string{"", "web", "db", "ops/bastion", "ops/web", "web"} {
		o.Spec.Rules = append(o.Spec.Rules, v1alpha1.SecurityGroupRule{Direction: v1alpha1.RuleIngress, RemoteGroup: remote})
	}
	// Of which more is wrong.
	o.Spec.Rules = append(o.Spec.Rules, v1alpha1.SecurityGroupRule{RemoteGroup: "db", RemoteIPPrefix: "10.0.0.0/8"})
	there := map[intent.PolicyRef]bool{SecurityGroupRef("shop", "web"): true, SecurityGroupRef("ops", "bastion"): true}
	var got []string
	for _, p := range MissingGroups(o, func(ref intent.PolicyRef) bool { return there[ref] }) {
		got = append(got, fmt.Sprintf("%s %s", p.Reason, p.Error()))
	}
	const text = "is not the name of a SecurityGroup; the rule allows nothing; create the group, or name another"
	want := []string{
		`NotFound securitygroup shop/web: spec.rules[2].remoteGroup: "db" ` + text, `NotFound securitygroup shop/web: spec.rules[4].remoteGroup: "ops/web" ` + text,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
