// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"
	"strings"
)

// Operation is what a Call does.
type Operation int

// The operations.
const (
	Create Operation = iota
	Update
	Delete
	Join   // put a port on a trunk
	Leave  // take a port off one
	Detach // have a floating IP lead to no port
)

// Call is one call of Neutron's API.
type Call struct {
	Operation Operation
	Ref       Ref
	Object    string // what people call what it is for; empty if that is gone
	// ID is that of what is changed or deleted; empty for the Routes of a router, and a Join of a
	// port, that a call before this one makes.
	ID string
	// Attributes are what a Create or an Update sets. Refs in them may be of resources that calls
	// before this one make.
	Attributes Attributes
	Spare      bool // it makes a resource that is Spare
	// Was is the Ref that an Update finds the resource with, if it gets another one.
	Was Ref
	// Adopts says that an Update makes a resource the cluster's that another system has made.
	Adopts bool
	Trunk  string // the id of that of a Join or a Leave
	// GivesBack says that an Update leaves a resource to the program that has made it.
	GivesBack bool
	// Frees is the id of the port that a floating IP leads to before the call, and not after it.
	Frees string
	// Owed is what the description then says.
	Owed
}

// rulesBeforePorts is how many rules are removed before ports are changed and made.
const rulesBeforePorts = 4

// planner compares.
type planner struct {
	want *Set
	have *Inventory
	// replaced are resources that are made anew, and so are those that refer to them by attributes
	// that cannot be changed.
	replaced map[Ref]bool
	// ids are those of the wanted resources that are there.
	ids map[string]bool
	// renamed are ports that are there with a Ref that is not wanted, by the one that they get;
	// leaving has the latter by the former.
	renamed, leaving map[Ref]Ref
	// looser are the ids of security groups with rules that are wanted no longer.
	looser map[string]bool
	// adopted are what other systems have made, by the Ref that it gets; adopters are these Refs,
	// by its id.
	adopted  map[Ref]Actual
	adopters map[string]Ref
	// groups are the security groups that are there, by their ids.
	groups map[string]Ref
	// awaited are the ids of ports that objects are about to get: see Set.Held.
	awaited map[string]bool
}

// Plan returns the calls that make what there is what is wanted, in an order in which each can
// succeed: first what is in the way is deleted, from what refers to others to what others refer to,
// then the rest is changed and made, in the order of the kinds.
//
// Security groups that are wanted no longer go last, since ports leave them by a change; and their
// rules when the new ones are there, so that what both allow is not interrupted: a few before
// ports, and the rest after them, of each group in turn. Each is a call, and of all policies of a
// namespace that change again and again there are ever more: neither ports nor rules of others wait
// for all of them. Nor do they for ready ports that are made anew, of which there can be as many,
// nor for all new groups and rules of other namespaces: see turns. A port that joins a group does
// wait for that one's.
// Spare resources are made after all that. Ports are put on their trunks as soon as they are as
// wanted, and are taken off them before all else. A floating IP that is to lead elsewhere first
// leads nowhere if an object is about to get the port.
func Plan(want *Set, have *Inventory) []Call {
	p := newPlanner(want, have)
	p.adopt()
	for _, k := range Kinds() {
		if k == Port {
			p.rename()
		}
		for _, r := range want.All(k) {
			a, there := p.get(r.Ref)
			if there && p.anew(r, a) {
				p.replaced[r.Ref] = true
			} else if there {
				p.ids[a.ID] = true
				p.awaited[a.ID] = !p.want.Holds(r, a)
			}
		}
	}
	calls := p.leave(nil)
	var stale []Call // ready ports
	for k := kinds - 1; k >= 0; k-- {
		for _, c := range p.remove(nil, k) {
			r, _ := want.Get(c.Ref)
			if a, _ := have.Get(c.Ref); r.Spare && len(p.differing(r.Fixed, a)) == 0 {
				stale = append(stale, c)
			} else {
				calls = append(calls, c)
			}
		}
	}
	var later, groups, rules []Call
	for _, k := range []Kind{SecurityGroup, SecurityGroupRule} {
		for _, r := range want.All(k) {
			switch c, needed := p.bring(r); {
			case !needed:
			case c.Operation != Create:
				calls = append(calls, c)
			case k == SecurityGroup:
				groups = append(groups, c)
			default:
				rules = append(rules, c)
			}
		}
	}
	turns := p.turns(groups, rules)
	n := min(len(turns), turnsBeforePorts)
	for _, t := range turns[:n] {
		calls = append(calls, t.calls...)
	}
	after := newLate(turns[n:])
	gone, goneLater := split(p.removeRules(), func(c Call) bool {
		_, waits := after.last[p.groupOf(c)]
		return waits
	})
	n = min(len(gone), rulesBeforePorts)
	calls, gone = append(calls, gone[:n]...), gone[n:]
	for _, k := range Kinds()[Network:] {
		for _, r := range want.All(k) {
			switch c, needed := p.bring(r); {
			case !needed:
			case r.Spare && c.Operation == Create:
				c.Spare = true
				later = append(later, c)
			case !after.takes(c):
				calls = append(calls, c)
			}
		}
	}
	joins, spareJoins := p.join()
	joins, joinsLater := split(joins, func(c Call) bool { return after.refs[c.Ref] })
	calls = slices.Concat(calls, gone, stale, joins, after.calls(joinsLater), goneLater)
	return slices.Concat(p.removeGroups(calls), later, spareJoins)
}

func newPlanner(want *Set, have *Inventory) *planner {
	p := &planner{
		want: want, have: have, replaced: map[Ref]bool{}, ids: map[string]bool{},
		renamed: map[Ref]Ref{}, leaving: map[Ref]Ref{}, looser: map[string]bool{}, adopted: map[Ref]Actual{},
		adopters: map[string]Ref{}, awaited: map[string]bool{}, groups: map[string]Ref{},
	}
	for r, a := range have.resources {
		if r.Kind == SecurityGroupRule && !p.wanted(r) {
			p.looser[text(a.Attributes["security_group_id"])] = true
		}
		if r.Kind == SecurityGroup {
			p.groups[a.ID] = r
		}
	}
	return p
}

// rename finds ports for those that are not there among those that are wanted no longer: of one MAC
// there is only one on a network. An interface that is plugged for one stays so. A port cannot be
// given to another project.
func (p *planner) rename() {
	type place struct{ network, mac, project string }
	left := map[place]Ref{}
	for _, r := range sortedRefs(p.have.resources, Port) {
		if a, _ := p.have.Get(r); !p.wanted(r) && !borrowed(r) {
			left[place{text(a.Attributes["network_id"]), text(a.Attributes["mac_address"]), r.Project}] = r
		}
	}
	for _, r := range p.want.All(Port) {
		at := place{text(p.resolved(r.Fixed["network_id"])), text(r.Fixed["mac_address"]), r.Project}
		was, ok := left[at]
		a, _ := p.have.Get(was)
		if _, there := p.get(r.Ref); !there && ok && !borrowed(r.Ref) && !p.anew(r, a) {
			p.renamed[r.Ref], p.leaving[was] = was, r.Ref
			delete(left, at)
		}
	}
}

// anew says whether a resource that is there cannot become the wanted one by a change.
func (p *planner) anew(r Resource, a Actual) bool {
	return len(p.differing(r.Fixed, a)) > 0 || p.anothers(r, a) || p.stale(r, a)
}

// stale says whether what a resource keeps is not to be kept. It is not changed in place: a ready
// port may still be plugged, by a pod that has lost its Port object, and would be opened to all.
// Made anew, it has another id, and what is plugged loses its network.
func (p *planner) stale(r Resource, a Actual) bool {
	for name, value := range r.Kept {
		if !p.refersToWanted(a.Attributes[name]) && !has(a.Attributes[name], p.resolved(value), true) {
			return true
		}
	}
	return false
}

// anothers says whether a port is still as another object needed it, or as its own policies were
// before (see Set.Held), or is Exposed. Those that other systems have made are of the same object,
// and those that are borrowed are not ours to make.
func (p *planner) anothers(r Resource, a Actual) bool {
	_, adopts := p.adopted[r.Ref]
	return !adopts && !borrowed(r.Ref) && !p.want.Holds(r, a) &&
		(len(p.differing(r.Mutable, a)) > 0 || p.looserThanWanted(a) || p.have.Exposed(a.ID))
}

// looserThanWanted says whether a port has a group that lets through what it is not to.
func (p *planner) looserThanWanted(a Actual) bool {
	return slices.ContainsFunc(list(a.Attributes["security_groups"]), func(id any) bool { return p.looser[text(id)] })
}

// get is what there is of a wanted resource, also if it has another Ref yet.
func (p *planner) get(r Ref) (Actual, bool) {
	a, there := p.have.Get(r)
	if was, ok := p.renamed[r]; ok && !there {
		return p.have.Get(was)
	}
	if other, ok := p.adopted[r]; ok && !there {
		return other, true
	}
	return a, there
}

// removeRules are calls that delete rules which are wanted no longer, of each group in turn. Those
// of a group that is deleted go with it, and remove deletes foreign ones.
func (p *planner) removeRules() []Call {
	leaving := map[string]bool{} // ids of groups
	for _, r := range sortedRefs(p.have.resources, SecurityGroup) {
		if !p.wanted(r) {
			leaving[p.have.resources[r].ID] = true
		}
	}
	var groups [][]Call
	index := map[string]int{} // of groups by their ids
	for _, r := range sortedRefs(p.have.resources, SecurityGroupRule) {
		a := p.have.resources[r]
		group := text(a.Attributes["security_group_id"])
		if p.wanted(r) || foreign(r) || leaving[group] {
			continue
		}
		i, known := index[group]
		if !known {
			i = len(groups)
			index[group], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], Call{Operation: Delete, Ref: r, ID: a.ID, Attributes: a.Attributes})
	}
	return inTurn(groups)
}

// groupOf is the group of a rule that is there.
func (p *planner) groupOf(c Call) Ref { return p.groups[text(c.Attributes["security_group_id"])] }

// inTurn are the first calls of all lists, then the second ones, and so on.
func inTurn(lists [][]Call) (calls []Call) {
	for i, left := 0, true; left; i++ {
		left = false
		for _, list := range lists {
			if i < len(list) {
				calls, left = append(calls, list[i]), true
			}
		}
	}
	return calls
}

// removeGroups adds calls that delete security groups which are wanted no longer, those with rules
// first: Neutron on SQLite does not delete a group that a rule of another one refers to.
func (p *planner) removeGroups(calls []Call) []Call {
	ruled := map[string]bool{} // ids of groups
	for r, a := range p.have.resources {
		if r.Kind == SecurityGroupRule {
			ruled[text(a.Attributes["security_group_id"])] = true
		}
	}
	var peers []Call
	for _, r := range sortedRefs(p.have.resources, SecurityGroup) {
		a := p.have.resources[r]
		c := Call{Operation: Delete, Ref: r, ID: a.ID, Attributes: a.Attributes}
		switch {
		case p.wanted(r):
		case ruled[a.ID]:
			calls = append(calls, c)
		default:
			peers = append(peers, c)
		}
	}
	return append(calls, peers...)
}

func (p *planner) wanted(r Ref) bool {
	_, ok := p.want.Get(r)
	return ok
}

// remove adds calls for what is there of a kind and wanted no longer, or not as it is.
func (p *planner) remove(calls []Call, k Kind) []Call {
	for _, r := range sortedRefs(p.have.resources, k) {
		wanted, still := p.want.Get(r)
		a, _ := p.have.Get(r)
		switch {
		case k == Routes:
			// The router goes with its routes; of one that stays, those go first that another
			// network's removal would stumble over.
			if left, fewer := p.keep(wanted, a); still && fewer {
				calls = append(calls, Call{Operation: Update, Ref: r, Object: wanted.Object, ID: a.ID,
					Attributes: Attributes{"routes": left}})
			} else if !still && len(list(a.Attributes["routes"])) > 0 {
				calls = append(calls, Call{Operation: Update, Ref: r, ID: a.ID,
					Attributes: Attributes{"routes": []any{}}})
			}
		case k == SubnetPool && !still && p.allocated(a.ID):
		case p.leaving[r] != Ref{}:
		case lentToUs(r, a) && (p.replaced[r] || !still):
			calls = append(calls, p.giveBack(r, a))
		case p.replaced[r], !still && k != SecurityGroup && (k != SecurityGroupRule || foreign(r)):
			calls = append(calls, Call{Operation: Delete, Ref: r, Object: wanted.Object, ID: a.ID,
				Attributes: a.Attributes, Frees: leadsTo(r, a)})
		case p.awaited[p.strays(wanted, a)]:
			calls = append(calls, Call{Operation: Detach, Ref: r, Object: wanted.Object, ID: a.ID,
				Attributes: Attributes{portID: nil}, Frees: leadsTo(r, a)})
		}
	}
	for _, r := range sortedRefs(p.have.surplus, k) {
		for _, a := range p.have.surplus[r] {
			if lentToUs(r, a) {
				calls = append(calls, p.giveBack(r, a))
				continue
			}
			calls = append(calls, Call{
				Operation: Delete, Ref: r, ID: a.ID, Attributes: a.Attributes, Frees: leadsTo(r, a),
			})
		}
	}
	return calls
}

// allocated reports whether a subnet that stays is of a pool: Neutron keeps such a pool.
func (p *planner) allocated(pool string) bool {
	for r, a := range p.have.resources {
		if r.Kind == Subnet && a.Attributes["subnetpool_id"] == pool && p.wanted(r) && !p.replaced[r] {
			return true
		}
	}
	return false
}

// foreignKey begins keys of rules that are in the cluster's groups and not the cluster's.
const foreignKey = "Foreign/"

// ForeignRule is a rule in one of the cluster's groups that the cluster has not made: one of those
// that Neutron gives a new group, or one that was added by hand. It is never wanted.
func ForeignRule(id string) Ref { return Ref{Kind: SecurityGroupRule, Key: foreignKey + id} }

func foreign(r Ref) bool { return r.Kind == SecurityGroupRule && strings.HasPrefix(r.Key, foreignKey) }

// keep are the routes that are there and stay.
func (p *planner) keep(wanted Resource, a Actual) (left []any, fewer bool) {
	stay := map[string]bool{}
	for _, route := range list(wanted.Mutable["routes"]) {
		stay[canonical(p.resolved(route))] = true
	}
	left = []any{}
	for _, route := range list(a.Attributes["routes"]) {
		if stay[canonical(route)] {
			left = append(left, route)
		} else {
			fewer = true
		}
	}
	return left, fewer
}

// bring is the call that makes or changes a resource; false: none is needed.
func (p *planner) bring(r Resource) (c Call, needed bool) {
	a, there := p.get(r.Ref)
	if there && !p.replaced[r.Ref] {
		changes := p.differing(r.Mutable, a)
		owed := p.detach(r, a, changes)
		unbind(r, a, changes)
		was := p.renamed[r.Ref]
		_, adopts := p.adopted[r.Ref]
		from := p.strays(r, a)
		if p.awaited[from] && !adopts { // it leads nowhere by now
			from = ""
			if r.Mutable[portID] == nil {
				delete(changes, portID)
			}
		}
		if len(changes) == 0 && was == (Ref{}) && !adopts {
			return Call{}, false
		}
		return Call{
			Operation: Update, Ref: r.Ref, Object: r.Object, ID: a.ID, Attributes: changes, Was: was, Adopts: adopts,
			Owed: owed, Frees: from,
		}, true
	}
	if r.Kind == Routes { // they are there as soon as their router is
		if len(list(r.Mutable["routes"])) == 0 {
			return Call{}, false
		}
		return Call{Operation: Update, Ref: r.Ref, Object: r.Object, Attributes: r.Mutable}, true
	}
	if r.Optional {
		return Call{}, false
	}
	all := Attributes{}
	for _, part := range []Attributes{r.Fixed, r.Mutable, r.Kept, r.Initial} {
		for name, value := range part {
			all[name] = value
		}
	}
	return Call{Operation: Create, Ref: r.Ref, Object: r.Object, Attributes: all}, true
}

// refersToWanted says whether a list of ids has some, all of wanted resources.
func (p *planner) refersToWanted(value any) bool {
	ids := list(value)
	for _, id := range ids {
		if !p.ids[text(id)] {
			return false
		}
	}
	return len(ids) > 0
}

// differing are the attributes that a resource does not have as they are wanted. On a network of
// another program that Neutron does not show now, ports stay as they are.
func (p *planner) differing(wanted Attributes, a Actual) Attributes {
	changes := Attributes{}
	for name, value := range wanted {
		if r, left := Unresolved(p.resolved(value)); left && r.lent() {
			continue
		}
		if !has(a.Attributes[name], p.resolved(value), name != "dns_nameservers") {
			changes[name] = value
		}
	}
	return changes
}

// resolved is a value with ids in place of the Refs of resources that are there and stay.
func (p *planner) resolved(value any) any {
	return Resolve(value, func(r Ref) (string, bool) {
		a, there := p.get(r)
		return a.ID, there && !p.replaced[r]
	})
}
