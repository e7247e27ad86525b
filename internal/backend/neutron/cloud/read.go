// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/retry"
)

// session is what is known of one Neutron.
type session struct {
	api     *gophercloud.ServiceClient
	project string // the cluster's own
	tenants tenants
	cluster names.Cluster
	// doubtful are resources of which it is not known whether a call has made them.
	doubtful map[resource.Ref]bool
	// refused says why Neutron has refused spare resources since all was read.
	refused map[resource.Ref]resource.Problem
	claims  func(context.Context) []resource.Claim
	lent    func() []Wanted
	// givenPools are the ids of the subnet pools of other programs that the settings name.
	givenPools []string
	parents    func() []Parent
	// pools says that there may be subnet pools of the cluster: most clusters have none, and need
	// no list of them.
	pools bool
	// last are the VLANs that ports have got last, by trunk.
	last map[string]int
	// short says that since all was read an object has had no port for Neutron's quota.
	short   bool
	attempt attempt
	// looked says when all was last read anew because of what Neutron answers about a resource, and
	// resync how often that may be.
	looked map[resource.Ref]time.Time
	resync time.Duration
	// unanswered counts how often calls have ended without an answer.
	unanswered map[callKey]int
	calls      func() // counts
	quotas     *quotaReader
	// least is how long a Neutron that is busy is left alone at least.
	least time.Duration
}

func newSession(
	api *gophercloud.ServiceClient, project string, others tenants, o Options, calls func(),
) *session {
	return &session{
		api: api, project: project, tenants: others, cluster: o.Cluster, claims: o.Claims, lent: o.Lent, calls: calls,
		givenPools: o.SubnetPools,
		parents:    o.Parents, pools: true, last: map[string]int{},
		doubtful: map[resource.Ref]bool{}, refused: map[resource.Ref]resource.Problem{},
		attempt: newAttempt(), looked: map[resource.Ref]time.Time{}, unanswered: map[callKey]int{},
		quotas: newQuotaReader(api, o, calls),
		least:  readPause,
	}
}

// Attempts to read, which have no effect: a Neutron that answers now and then with an error is
// asked again at once.
const (
	readAttempts = 5
	readPause    = 200 * time.Millisecond
)

// read returns all that there is of the cluster.
func (s *session) read(ctx context.Context) (*resource.Inventory, error) {
	have := resource.NewInventory()
	have.Own = s.project
	pools := false
	routers, subnets := map[string]resource.Ref{}, map[string]resource.Ref{}
	groups := map[string]bool{}
	claims := s.claims(ctx)
	others := map[place]resource.Actual{}
	trunked := false
	var foreign []otherInterface
	for _, k := range resource.Kinds() {
		if k == resource.Routes || k == resource.BGPVPN || k == resource.Association ||
			k == resource.SubnetPool && !s.pools {
			continue
		}
		found, err := s.listAll(ctx, k)
		// Not each plugin of Neutron has pools.
		if err != nil && !(k == resource.SubnetPool && gone(err)) {
			return nil, err
		}
		for _, a := range found {
			if k == resource.Interface {
				foreign = append(foreign, putInterfaces(have, a, routers, subnets)...)
				continue
			}
			key, ours := s.owned(k, &a)
			r := resource.Ref{Kind: k, Key: key, Project: have.ProjectOf(a)}
			group, _ := a.Attributes["security_group_id"].(string)
			if k == resource.SecurityGroupRule && !ours && groups[group] {
				r, ours = resource.ForeignRule(a.ID), true
			}
			if !ours {
				others[place{k, a.ID}] = a
				continue
			}
			have.Put(r, a)
			switch k {
			case resource.SubnetPool:
				pools = true
			case resource.Port:
				trunked = trunked || a.Attributes["device_owner"] == resource.SubportOwner
			case resource.SecurityGroup:
				groups[a.ID] = true
			case resource.Router:
				routers[a.ID] = r
				have.Put(resource.Ref{Kind: resource.Routes, Key: r.Key}, routesOf(a))
			case resource.Subnet:
				subnets[a.ID] = r
			}
		}
	}
	s.pools = pools
	for _, c := range claims {
		a, there := others[place{c.Kind, c.ID}]
		have.Offer(c, a, there)
	}
	if err := s.readForeign(ctx, have, foreign); err != nil {
		return nil, err
	}
	if err := s.readTrunks(ctx, have, trunked); err != nil {
		return nil, err
	}
	if err := s.readBGPVPNs(ctx, have, routers); err != nil {
		return nil, err
	}
	if err := s.readSubnetPools(ctx, have); err != nil {
		return nil, err
	}
	return have, s.readLent(ctx, have)
}

// look finds what there is of ports that objects name. One of another project than their network's
// is not there, and neither is one that the cluster has already for another object. An error is an
// *outage.
func (s *session) look(ctx context.Context, have *resource.Inventory, claims []resource.Claim) error {
	for _, c := range have.Ask(claims) {
		var answer map[string]map[string]any
		err := s.get(ctx, collections[c.Kind].path+"/"+c.ID, &answer)
		var refused *refusal
		if err != nil && !errors.As(err, &refused) {
			return err
		}
		if err != nil && !refused.gone {
			c.Refused = "Neutron does not say what it is: " + refused.text
		}
		a := actual(answer[collections[c.Kind].singular])
		key, ours := s.owned(c.Kind, &a)
		there := err == nil && have.ProjectOf(a) == c.Ref.Project && (!ours || key == c.Ref.Key)
		if err := s.rereadSubport(ctx, have, c, a); err != nil {
			return err
		}
		have.Answer(c, a, there)
	}
	return nil
}

// owned is the key of a resource by its description, of which it notes what is owed; false: it is
// not the cluster's.
func (s *session) owned(k resource.Kind, a *resource.Actual) (key string, ours bool) {
	description, _ := a.Attributes["description"].(string)
	if key, ours = s.cluster.Owned(description); ours {
		key, a.Owed = resource.Described(k, key)
	}
	return key, ours
}

// place is a resource of Neutron.
type place struct {
	kind resource.Kind
	id   string
}

// routesOf are the Routes of a router.
func routesOf(a resource.Actual) resource.Actual {
	return resource.Actual{ID: a.ID, Attributes: resource.Attributes{
		"routes": a.Attributes["routes"], "created_at": a.Attributes["created_at"],
	}}
}

// putInterfaces adds the interfaces of a router's port, if the router and the subnets are the
// cluster's: it has one for each subnet, and IPv6 subnets of one network share a port. It returns
// those for other subnets.
func putInterfaces(
	have *resource.Inventory, port resource.Actual, routers, subnets map[string]resource.Ref,
) (others []otherInterface) {
	router, _ := port.Attributes["device_id"].(string)
	of, ours := routers[router]
	if !ours {
		return nil
	}
	ips, _ := port.Attributes["fixed_ips"].([]any)
	for _, ip := range ips {
		fixed, _ := ip.(map[string]any)
		subnet, _ := fixed["subnet_id"].(string)
		r, ours := subnets[subnet]
		if !ours {
			address, _ := fixed["ip_address"].(string)
			others = append(others, otherInterface{of, subnet, address})
			continue
		}
		have.Put(resource.Ref{Kind: resource.Interface, Key: r.Key, Project: r.Project}, resource.Actual{
			ID: port.ID, Attributes: resource.Attributes{"router_id": router, "subnet_id": subnet},
		})
	}
	return others
}

// maxProjects is how many projects a list asks for at once: a request has room for more.
const maxProjects = 100

// projects are all that the cluster has resources in, its own first.
func (s *session) projects() []string { return append([]string{s.project}, s.tenants.read...) }

// listAll returns all resources of a kind, of all projects that the cluster has some in.
func (s *session) listAll(ctx context.Context, k resource.Kind) (all []resource.Actual, err error) {
	projects := []string{s.project}
	if collections[k].everywhere {
		projects = s.projects()
	}
	for some := range slices.Chunk(projects, maxProjects) {
		found, err := s.list(ctx, k, some, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// list returns all resources of a kind in projects that a filter leaves, page by page.
func (s *session) list(
	ctx context.Context, k resource.Kind, projects []string, more url.Values,
) ([]resource.Actual, error) {
	c := collections[k]
	query := url.Values{}
	if !c.noProject {
		query["project_id"] = projects
	}
	for _, filter := range []url.Values{c.filter, more} {
		maps.Copy(query, filter)
	}
	items, err := list[map[string]any](s.getter(ctx), c.path, c.plural, query)
	all := make([]resource.Actual, len(items))
	for i, attributes := range items {
		all[i] = actual(attributes)
	}
	return all, err
}

// prefixLengths are attributes of subnet pools that releases of Neutron write as texts or as
// numbers.
var prefixLengths = []string{"default_prefixlen", "min_prefixlen", "max_prefixlen"}

func actual(attributes map[string]any) resource.Actual {
	id, _ := attributes["id"].(string)
	for _, name := range prefixLengths {
		if text, ok := attributes[name].(string); ok {
			if n, err := strconv.Atoi(text); err == nil {
				attributes[name] = n
			}
		}
	}
	return resource.Actual{ID: id, Attributes: attributes}
}

// getter reads what is at a path of Neutron's API.
type getter func(path string, into any) error

// getter is get with a context.
func (s *session) getter(ctx context.Context) getter {
	return func(path string, into any) error { return s.get(ctx, path, into) }
}

// get reads, again after an error that may be gone.
func (s *session) get(ctx context.Context, path string, into any) error {
	pause := retry.New(readPause, lastPause)
	for attempt := 1; ; attempt++ {
		err := s.do(ctx, http.MethodGet, path, nil, into)
		var away *outage
		if attempt == readAttempts || !errors.As(err, &away) {
			return err
		}
		if !retry.Sleep(ctx, away.pause(pause.Next, s.least)) {
			return err
		}
	}
}

// owner is what a resource is known by: its description, or its name.
func (s *session) owner(r resource.Ref) string { return s.cluster.Owner(r.Key) }

// find returns the resource with a Ref, if a call has made it that was not answered.
func (s *session) find(ctx context.Context, r resource.Ref) (a resource.Actual, found bool, err error) {
	mark := collections[r.Kind].mark()
	list, err := s.list(ctx, r.Kind, []string{cmp.Or(r.Project, s.project)}, url.Values{mark: {s.owner(r)}})
	for _, a := range list {
		if text, _ := a.Attributes[mark].(string); text == s.owner(r) {
			return a, true, nil
		}
	}
	return a, false, err
}
