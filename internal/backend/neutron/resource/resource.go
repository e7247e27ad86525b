// SPDX-License-Identifier: Apache-2.0

// Package resource describes resources of Neutron: those that a cluster wants, those that there are
// of it, and which calls make the former of the latter. It does no I/O.
//
// A resource is found again by its description, which names the cluster and the object that it is
// made of. The call that makes a resource sets it, so that none is left behind unmarked; tags need
// a call of their own, in all releases of Neutron that there are.
package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Kind is a kind of resources. They are in the order in which they can be made: each refers only to
// those before it.
type Kind int

// The kinds. Interface is a Subnet's place on a Router, and Routes are the extra routes of one:
// both are parts of a Router, which need others to be there. Association is a Router's place in a
// BGPVPN.
const (
	SecurityGroup Kind = iota
	SecurityGroupRule
	Network
	SubnetPool
	Subnet
	Router
	Interface
	Port
	Routes
	FloatingIP
	BGPVPN
	Association
	kinds // how many there are
)

// Kinds are all kinds, in order.
func Kinds() []Kind {
	list := make([]Kind, kinds)
	for i := range list {
		list[i] = Kind(i)
	}
	return list
}

// String is how messages call the kind.
func (k Kind) String() string {
	return [...]string{
		"security group", "security group rule", "network", "subnet pool", "subnet", "router", "router interface",
		"port", "routes of router", "floating IP", "BGPVPN", "router association of BGPVPN",
	}[k]
}

// Ref names a resource: its kind, the object that it is made of, and where it is. What is in one
// project is never taken for what is wanted in another: people of a project can give what they make
// any description.
type Ref struct {
	Kind Kind
	Key  string // see Key
	// Project is the id of the project that it is in; empty: the cluster's own.
	Project string
}

// In is the Ref of the same in another project.
func (r Ref) In(project string) Ref {
	r.Project = project
	return r
}

func (r Ref) String() string {
	text := r.Kind.String() + " " + strings.TrimPrefix(r.Key, lentKey)
	if r.Project != "" {
		text += " of project " + r.Project
	}
	return text
}

// maxKey is how long a key may be: a description has 255 bytes, of which the cluster takes up to
// 64.
const maxKey = 190

// hashBytes are how many bytes of a hash end a key that would be too long.
const hashBytes = 16

// Key is the key of the resource that an object is made into, such as Port/shop/web; parts tell
// several of one kind apart. What would be too long for a description ends with a hash.
func Key(object string, parts ...string) string {
	return bounded(strings.Join(append([]string{object}, parts...), " "), maxKey)
}

func bounded(key string, most int) string {
	if len(key) <= most {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	hash := "#" + hex.EncodeToString(sum[:hashBytes])
	return key[:most-len(hash)] + hash
}

// Attributes are those of a resource by the names that Neutron's API has for them. Values are what
// JSON has, and Refs, which stand for the ids of other resources.
type Attributes map[string]any

// Resource is one that is wanted.
type Resource struct {
	Ref
	// Object is what people call what it is made of, such as "Port shop/web".
	Object string
	// Holder is the UID of the object that a port is for, which tells it from others of its name at
	// other times; empty: there are no others, or it is for none.
	Holder string
	// Fixed are attributes that cannot be changed: a resource that has others is made anew.
	Fixed Attributes
	// Mutable are attributes that can be.
	Mutable Attributes
	// Initial are set when the resource is made, and are not compared later.
	Initial Attributes
	// Kept are set when the resource is made. Later they stay as they are, as long as all resources
	// that they name are wanted; then the resource is made anew.
	Kept Attributes
	// Spare says that the resource is for an object that may come: calls for it come last.
	Spare bool
	// Optional says that it stays if it is there, and is not made.
	Optional bool
	// Trunk is the name of the node that has the trunk which a port is to be on; empty: on none.
	Trunk string
}

// Problem is what Neutron does not do for an object, or not as asked for.
type Problem struct {
	Object  string // what people call it
	Reason  string // one word, as conditions have it
	Message string // what is not done, and what to do
}

// Set is all that is wanted.
type Set struct {
	resources map[Ref]Resource
	Problems  []Problem
	// Held says whether the Holder of a port may have plugged it already. A port that has another
	// object's security groups is not given to a Holder by a change of them: OVN would connect the
	// interface with the former ones until northd has the change. Nil: all are held.
	Held func(Resource, Actual) bool
	// Projects are those beside the cluster's own that something is asked for in, and what people
	// call the objects that ask for it.
	Projects map[string][]string
}

// NewSet returns an empty Set.
func NewSet() *Set { return &Set{resources: map[Ref]Resource{}, Projects: map[string][]string{}} }

// Add adds a resource and returns its Ref. Of two with one Ref the first stays.
func (s *Set) Add(r Resource) Ref {
	if _, there := s.resources[r.Ref]; !there {
		s.resources[r.Ref] = r
	}
	return r.Ref
}

// Required is the Set without what may come and is Optional. What another program has made stays.
func (s *Set) Required() *Set {
	required := &Set{resources: map[Ref]Resource{}, Problems: s.Problems, Held: s.Held, Projects: s.Projects}
	for ref, r := range s.resources {
		if !r.Spare || !r.Optional {
			required.resources[ref] = r
		}
	}
	return required
}

// Get is the resource with a Ref.
func (s *Set) Get(r Ref) (Resource, bool) {
	found, ok := s.resources[r]
	return found, ok
}

// Len is how many resources there are.
func (s *Set) Len() int { return len(s.resources) }

// Problem adds a Problem.
func (s *Set) Problem(object, reason, message string) {
	s.Problems = append(s.Problems, Problem{object, reason, message})
}

// Holds reports whether the Holder of a port may have plugged it already.
func (s *Set) Holds(r Resource, a Actual) bool {
	return s.Held == nil || r.Holder == "" || s.Held(r, a)
}

// Asks notes that an object asks for something in a project; empty: the cluster's own.
func (s *Set) Asks(object, project string) {
	if project != "" {
		s.Projects[project] = append(s.Projects[project], object)
	}
}

// All are the resources of a kind, by key.
func (s *Set) All(k Kind) []Resource {
	var list []Resource
	for _, r := range s.resources {
		if r.Kind == k {
			list = append(list, r)
		}
	}
	sortByKey(list, func(r Resource) string { return r.Key })
	return list
}
