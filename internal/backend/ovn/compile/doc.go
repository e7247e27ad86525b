// SPDX-License-Identifier: Apache-2.0

// Package compile makes rows of OVN's northbound database (package nb) of intent. It does no I/O,
// and the rows depend on present intent only: what a Compiler has after any Updates is what a new
// one would have.
//
// The work is divided into kinds. A Kind knows the objects of one kind of intent, such as Ports,
// and compiles each into a unit: rows, elements of other rows' sets, and problems. An Update asks
// each Kind which of its units a change of intent may concern, and compiles these anew. Units do
// not see each other: a unit refers to a row of another Kind by its key, which the other Kind's
// file has a function for (switchRef, routerRef, portRef), and adds to the sets of such rows with
// elements. So Services and policies are Kinds of their own, which add Load_Balancers to the groups
// of Routers, and Ports to Port_Groups, without a change of the units of Networks or Ports:
//
//	func (serviceKind) Name() string { return "Service" }
//	func (serviceKind) Affected(from, to *intent.State, d intent.Delta, yield func(key string)) {…}
//	func (k serviceKind) Compile(s *intent.State, key string, u *nb.Unit) {
//		lb := u.Add(nb.Key("Service/"+key, "tcp"), &nb.LoadBalancer{…})
//		u.Put(loadBalancerGroupRef(router), "load_balancer", lb.Key)
//	}
//
// A unit's name is Name()/key, and the keys of its rows begin with it, so that no two units have
// one row. All kinds are in the list in kinds.go.
package compile
