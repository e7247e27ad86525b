// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

// Projects are the projects of OpenStack that Namespaces may ask for, each with the names of these:
// a tenant that may change its Namespace could else make things in the project of another one.
type Projects map[string][]string

// EveryNamespace in place of a name stands for all.
const EveryNamespace = "*"

var projectID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// ParseProjects reads settings such as PROJECT=NAMESPACE,NAMESPACE.
func ParseProjects(settings []string) (Projects, error) {
	all := Projects{}
	for _, s := range settings {
		id, names, _ := strings.Cut(s, "=")
		list := strings.Split(names, ",")
		switch {
		case !projectID.MatchString(id):
			return nil, fmt.Errorf("%q: %q is no id of a project: write PROJECT=NAMESPACE,…", s, id)
		case slices.Contains(list, ""):
			return nil, fmt.Errorf("%q: names of namespaces are missing, or %s for all", s, EveryNamespace)
		case all[id] != nil:
			return nil, fmt.Errorf("%q: the project is there twice: give it all of its namespaces at once", s)
		}
		all[id] = list
	}
	return all, nil
}

// Tenant is what a Namespace says of its project.
func (p Projects) Tenant(o *corev1.Namespace) intent.Tenant {
	t := intent.Tenant{Namespace: o.Name}
	id, asks := o.Annotations[v1alpha1.KuryrProjectAnnotation]
	switch names := p[id]; {
	case !asks:
	case slices.Contains(names, o.Name) || slices.Contains(names, EveryNamespace):
		t.Project = id
	default:
		t.Denied = strconv.Quote(id)
	}
	return t
}

// Place says in which project a Network is to be: in that of the Namespaces that it selects, if all
// have the same one, and else in the cluster's own. What it says itself comes first.
func (p Projects) Place(n intent.Network, o *v1alpha1.Network, selected []intent.Tenant) intent.Network {
	switch {
	case n.Project != "" || len(p) == 0 || o.Spec.NamespaceSelector == nil || n.Physical != "" || n.FromNodes():
		return n
	case len(selected) == 0:
		n.Undecided = true
		return n
	}
	for _, t := range selected {
		if t.Project != selected[0].Project {
			return n
		}
	}
	n.Project = selected[0].Project
	return n
}
