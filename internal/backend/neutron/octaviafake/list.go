// SPDX-License-Identifier: Apache-2.0

package octaviafake

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// list is what a filter leaves, from a marker on, up to the page's size. As with the real one, a
// page that is full has a link to the next one, which may be empty.
func (o *Octavia) list(r *http.Request, kind, pool string) (int, any, *refused) {
	query := r.URL.Query()
	limit := o.page
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, nil, invalid("Supplied pagination limit '%s' is not valid.", text)
		}
		limit = min(limit, n)
	}
	marker := query.Get("marker")
	if marker != "" && o.find(kind, marker) == nil {
		return 0, nil, invalid("Supplied pagination marker '%s' is not valid.", marker)
	}
	found, links := []object{}, []object{}
	skipping := marker != ""
	for _, i := range o.of(kind) {
		if skipping {
			skipping = i.id() != marker
			continue
		}
		fits, err := fits(i, query)
		if err != nil {
			return 0, nil, err
		}
		if fits && (kind != "members" || i.pool == pool) && len(found) < limit {
			found = append(found, o.show(i))
		}
	}
	if len(found) >= limit {
		last := found[len(found)-1]["id"]
		href := fmt.Sprintf("%s%s?limit=%d&marker=%v", o.URL, r.URL.Path, limit, last)
		links = append(links, object{"rel": "next", "href": href})
	}
	return http.StatusOK, object{kind: found, kind + "_links": links}, nil
}

// fits reports whether a filter leaves a resource.
func fits(i *item, query url.Values) (bool, *refused) {
	all := true
	for name, values := range query {
		switch name {
		case "limit", "marker", "fields":
		case "tags":
			tags := list(i.object["tags"])
			for _, v := range values {
				for tag := range strings.SplitSeq(v, ",") {
					all = all && slices.Contains(tags, any(tag))
				}
			}
		case "loadbalancer_id":
			all = all && slices.Contains(values, i.balancer)
		default:
			value, known := i.object[name]
			if !known {
				return false, invalid("One or more arguments are either duplicate or invalid")
			}
			all = all && slices.Contains(values, fmt.Sprint(value))
		}
	}
	return all, nil
}

func list(value any) []any {
	l, _ := value.([]any)
	return l
}
