// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

// A rule that names a missing group is reported until the group exists.
func TestRemoteGroupsThatDoNotExist(t *testing.T) {
	web := &v1alpha1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", Generation: 1}}
	web.Spec.Rules = []v1alpha1.SecurityGroupRule{{Direction: v1alpha1.RuleIngress, RemoteGroup: "clients"}}
	clients := &v1alpha1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "clients", Generation: 1}}
	told := func(p *Feed) string {
		list, _ := p.findings()
		for _, k := range list {
			if k.ref.Name == "web" && len(k.problems) == 1 {
				return k.problems[0].Field
			}
		}
		return ""
	}
	p, _ := testPolicies(web)
	if got := told(p); got != "spec.rules[0].remoteGroup" {
		t.Errorf("without the group: %q", got)
	}
	if s := p.enforcementStatuses(); len(s) != 1 || len(s[0].Problems) != 1 {
		t.Errorf("without the group: %+v", s)
	}
	p.note(clients, false)
	p.apply()
	if got := told(p); got != "" {
		t.Errorf("with the group: %q", got)
	}
	p.note(clients, true)
	p.apply()
	if told(p) == "" {
		t.Error("the group is gone, and nobody is told")
	}
}
