// SPDX-License-Identifier: Apache-2.0

package neutronfake

import (
	"net/http"
	"strings"
)

// Quota bounds how many resources of a collection each project may have; negative: it does not.
func (n *Neutron) Quota(collection string, most int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.quotas[collection] = most
	if most < 0 {
		delete(n.quotas, collection)
	}
}

// quotaDetails is the project of which a path has the quotas.
func quotaDetails(path string) (project string, is bool) {
	project, is = strings.CutPrefix(path, "quotas/")
	project, details := strings.CutSuffix(project, "/details")
	return project, is && details && !strings.Contains(project, "/")
}

// ShowQuotas says whether the quotas of a project are shown: by default all are. Of the project
// AllProjects: whether there is the extension.
func (n *Neutron) ShowQuotas(project string, shown bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hidden[project] = !shown
}

// AllProjects stands for each project.
const AllProjects = ""

// details are the quotas of a project, and what it has of each resource.
func (n *Neutron) details(project string) (int, any, *refused) {
	switch {
	case n.hidden[AllProjects]:
		return 0, nil, refuse(http.StatusNotFound, "HTTPNotFound", "The resource could not be found.")
	case n.hidden[project]:
		return 0, nil, refuse(http.StatusForbidden, "AdminRequired",
			"User does not have admin privileges: Only admin is authorized to access quotas for another project.")
	}
	all := object{}
	for path, c := range collections {
		limit, bounded := n.quotas[path]
		if !bounded {
			limit = -1
		}
		all[c.singular] = object{"limit": limit, "used": n.count(path, project), "reserved": 0}
	}
	return http.StatusOK, object{"quota": all}, nil
}
