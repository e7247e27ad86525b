// SPDX-License-Identifier: Apache-2.0

package intent

// A new kind of object is a type with the methods of object, a field in each of tables, Objects and
// Delta, and an entry in kinds.

// tables are the parts of a State that Tx may change.
type tables struct {
	local        Local
	routers      Table[Router]
	networks     Table[Network]
	nodes        Table[Node]
	ports        Table[Port]
	blocks       Table[Block]
	services     Table[Service]
	nodeServices Table[NodeService]
	listeners    Table[Listener]
	guarded      Table[GuardedPort]
	nodePortsAt  Table[NodePortAddress]
	uplinks      Table[Uplink]
	ranges       Table[ServiceRange]
	pools        Table[LoadBalancerPool]
	floatingIPs  Table[FloatingIP]
	chosen       Table[ChosenAddress]
	tenants      Table[Tenant]

	gatewayAddresses Table[GatewayAddress]
	egressAddresses  Table[EgressAddress]
	egressPaths      Table[EgressPath]

	rules    Table[Rule]
	subjects Table[Subject]
	peers    Table[Peer]
}

// Objects is a whole State as lists, in any order.
type Objects struct {
	Local    Local
	Routers  []Router
	Networks []Network
	Nodes    []Node
	Ports    []Port
	Blocks   []Block
	Services []Service
	// NodeServices may be made by a Derivation.
	NodeServices      []NodeService
	Listeners         []Listener
	GuardedPorts      []GuardedPort
	NodePortAddresses []NodePortAddress
	Uplinks           []Uplink

	ServiceRanges     []ServiceRange
	LoadBalancerPools []LoadBalancerPool
	FloatingIPs       []FloatingIP
	ChosenAddresses   []ChosenAddress
	Tenants           []Tenant
	GatewayAddresses  []GatewayAddress
	EgressAddresses   []EgressAddress
	EgressPaths       []EgressPath
	Rules             []Rule
	Subjects          []Subject
	Peers             []Peer
}

// Delta names the objects that were added, changed or removed between two
// States, by key, sorted.
type Delta struct {
	Local             bool // Local is another one
	Routers           []string
	Networks          []string
	Nodes             []string
	Ports             []string
	Blocks            []string
	Services          []string
	NodeServices      []string
	Listeners         []string
	GuardedPorts      []string
	NodePortAddresses []string // prefixes
	Uplinks           []string // names of physical networks
	// ServiceRanges are prefixes.
	ServiceRanges     []string
	LoadBalancerPools []string
	FloatingIPs       []string
	ChosenAddresses   []string
	Tenants           []string // names of namespaces
	GatewayAddresses  []string
	EgressAddresses   []string
	EgressPaths       []string
	Rules             []string
	Subjects          []string
	Peers             []string
}

// kinds are all kinds of objects.
var kinds = []kind{
	kindOf[Router]{
		KindRouter, func(p parts) part[Router] { return part[Router]{&p.routers, &p.Routers, &p.delta.Routers} },
		[]index[Router]{
			routersByImport: {values: func(r Router) []string { return r.Imports }},
			routersPrivate:  {values: func(r Router) []string { return where(r.Private()) }},
		},
	},
	kindOf[Network]{
		KindNetwork, func(p parts) part[Network] { return part[Network]{&p.networks, &p.Networks, &p.delta.Networks} },
		[]index[Network]{networksByRouter: {values: func(n Network) []string { return []string{n.Router} }}},
	},
	kindOf[Node]{
		KindNode, func(p parts) part[Node] { return part[Node]{&p.nodes, &p.Nodes, &p.delta.Nodes} }, nil,
	},
	kindOf[Port]{
		KindPort, func(p parts) part[Port] { return part[Port]{&p.ports, &p.Ports, &p.delta.Ports} },
		[]index[Port]{
			portsByNetwork: {values: func(p Port) []string { return []string{p.Network} }},
			portsByAddress: {values: func(p Port) []string { return texts(p.Addresses) }},
			portsByObject:  {values: func(p Port) []string { return named(p.ObjectKey()) }},
		},
	},
	kindOf[Block]{
		KindBlock, func(p parts) part[Block] { return part[Block]{&p.blocks, &p.Blocks, &p.delta.Blocks} },
		[]index[Block]{blocksByNetwork: {values: func(b Block) []string { return []string{b.Network} }}},
	},
	kindOf[Service]{
		"", func(p parts) part[Service] { return part[Service]{&p.services, &p.Services, &p.delta.Services} }, nil,
	},
	kindOf[NodeService]{
		KindService, func(p parts) part[NodeService] {
			return part[NodeService]{&p.nodeServices, &p.NodeServices, &p.delta.NodeServices}
		}, nil,
	},
	kindOf[Listener]{
		"", func(p parts) part[Listener] { return part[Listener]{&p.listeners, &p.Listeners, &p.delta.Listeners} }, nil,
	},
	kindOf[GuardedPort]{
		"", func(p parts) part[GuardedPort] {
			return part[GuardedPort]{&p.guarded, &p.GuardedPorts, &p.delta.GuardedPorts}
		}, nil,
	},
	kindOf[NodePortAddress]{
		"", func(p parts) part[NodePortAddress] {
			return part[NodePortAddress]{&p.nodePortsAt, &p.NodePortAddresses, &p.delta.NodePortAddresses}
		}, nil,
	},
	kindOf[Uplink]{
		"", func(p parts) part[Uplink] { return part[Uplink]{&p.uplinks, &p.Uplinks, &p.delta.Uplinks} }, nil,
	},
	kindOf[ServiceRange]{
		KindServiceRange, func(p parts) part[ServiceRange] {
			return part[ServiceRange]{&p.ranges, &p.ServiceRanges, &p.delta.ServiceRanges}
		}, nil,
	},
	kindOf[LoadBalancerPool]{
		"", func(p parts) part[LoadBalancerPool] {
			return part[LoadBalancerPool]{&p.pools, &p.LoadBalancerPools, &p.delta.LoadBalancerPools}
		}, nil,
	},
	kindOf[FloatingIP]{
		KindFloatingIP, func(p parts) part[FloatingIP] {
			return part[FloatingIP]{&p.floatingIPs, &p.FloatingIPs, &p.delta.FloatingIPs}
		},
		[]index[FloatingIP]{
			floatingIPsByPort:    {values: func(f FloatingIP) []string { return named(f.Port) }},
			floatingIPsByService: {values: func(f FloatingIP) []string { return named(f.Service) }},
			floatingIPsByAddress: {values: func(f FloatingIP) []string { return []string{f.Address.String()} }},
		},
	},
	kindOf[ChosenAddress]{
		"", func(p parts) part[ChosenAddress] {
			return part[ChosenAddress]{&p.chosen, &p.ChosenAddresses, &p.delta.ChosenAddresses}
		}, nil,
	},
	kindOf[Tenant]{
		"", func(p parts) part[Tenant] { return part[Tenant]{&p.tenants, &p.Tenants, &p.delta.Tenants} }, nil,
	},
	kindOf[GatewayAddress]{
		KindGatewayAddress, func(p parts) part[GatewayAddress] {
			return part[GatewayAddress]{&p.gatewayAddresses, &p.GatewayAddresses, &p.delta.GatewayAddresses}
		},
		[]index[GatewayAddress]{
			gatewayAddressesByNode: {values: func(g GatewayAddress) []string { return []string{g.Node} }},
			gatewayAddressesByUse: {values: func(g GatewayAddress) []string {
				return []string{g.Node + " " + g.Router}
			}},
		},
	},
	kindOf[EgressAddress]{
		KindEgressAddress, func(p parts) part[EgressAddress] {
			return part[EgressAddress]{&p.egressAddresses, &p.EgressAddresses, &p.delta.EgressAddresses}
		},
		[]index[EgressAddress]{
			egressAddressesByUser: {values: func(e EgressAddress) []string { return []string{e.User()} }},
			egressAddressesByNode: {values: func(e EgressAddress) []string { return e.Nodes }},
		},
	},
	kindOf[EgressPath]{
		KindEgress, func(p parts) part[EgressPath] {
			return part[EgressPath]{&p.egressPaths, &p.EgressPaths, &p.delta.EgressPaths}
		}, nil,
	},
	kindOf[Rule]{
		"", func(p parts) part[Rule] { return part[Rule]{&p.rules, &p.Rules, &p.delta.Rules} },
		[]index[Rule]{
			rulesByGroup:  {values: func(r Rule) []string { return r.Groups }},
			rulesByBlock:  {values: func(r Rule) []string { return texts(r.Blocks) }},
			rulesByPolicy: {values: func(r Rule) []string { return []string{r.Policy.String()} }},
		},
	},
	kindOf[Subject]{
		"", func(p parts) part[Subject] { return part[Subject]{&p.subjects, &p.Subjects, &p.delta.Subjects} },
		[]index[Subject]{subjectsByRule: {values: func(v Subject) []string { return v.Rules }}},
	},
	kindOf[Peer]{
		"", func(p parts) part[Peer] { return part[Peer]{&p.peers, &p.Peers, &p.delta.Peers} },
		nil,
	},
}

// The indexes of Routers, by position.
const (
	routersByImport = iota
	routersPrivate
)

// The indexes of Ports.
const (
	portsByNetwork = iota
	portsByAddress
	portsByObject
)

// The indexes of FloatingIPs.
const (
	floatingIPsByPort = iota
	floatingIPsByService
	floatingIPsByAddress
)

// The indexes of GatewayAddresses.
const (
	gatewayAddressesByNode = iota
	gatewayAddressesByUse
)

// The indexes of EgressAddresses.
const (
	egressAddressesByUser = iota
	egressAddressesByNode
)

// The indexes of Rules.
const (
	rulesByGroup = iota
	rulesByBlock
	rulesByPolicy
)

// The only indexes of their kinds.
const (
	networksByRouter = 0
	blocksByNetwork  = 0
	subjectsByRule   = 0
)

// kind is what a State does with objects of all kinds alike.
type kind interface {
	// ref is the Kind in a Ref; empty: nothing refers to such objects.
	ref() Kind
	setUp(*tables)
	replace(*tables, *Objects)
	diff(from, to *tables, into *Delta)
	differs(*Delta) bool
	describe(t *tables, key string) string
	remove(t *tables, key string)
}

// kindOf is the kind of objects of type T.
type kindOf[T object[T]] struct {
	name    Kind
	in      func(parts) part[T]
	indexes []index[T]
}

// parts is where all kinds have their part.
type parts struct {
	*tables
	*Objects
	delta *Delta
}

// part is where objects of one kind are.
type part[T object[T]] struct {
	table *Table[T]
	list  *[]T
	delta *[]string
}

// What a part is asked for without, which nothing writes to.
var (
	noTables  = &tables{}
	noObjects = &Objects{}
	noDelta   = &Delta{}
)

func (k kindOf[T]) ref() Kind { return k.name }

func (k kindOf[T]) table(t *tables) *Table[T] { return k.in(parts{t, noObjects, noDelta}).table }

func (k kindOf[T]) setUp(t *tables) { k.table(t).indexes = append([]index[T](nil), k.indexes...) }

func (k kindOf[T]) replace(t *tables, o *Objects) {
	p := k.in(parts{t, o, noDelta})
	*p.table = replace(*p.table, *p.list)
}

func (k kindOf[T]) diff(from, to *tables, into *Delta) {
	*k.in(parts{noTables, noObjects, into}).delta = changes(*k.table(from), *k.table(to))
}

func (k kindOf[T]) differs(d *Delta) bool { return len(*k.in(parts{noTables, noObjects, d}).delta) > 0 }

func (k kindOf[T]) describe(t *tables, key string) string { return text(k.table(t).Get(key)) }

func (k kindOf[T]) remove(t *tables, key string) {
	table := k.table(t)
	*table = table.delete(key)
}

// where files an object in an index of those of which something is true.
func where(is bool) []string {
	if is {
		return []string{""}
	}
	return nil
}

// named files an object under a name, if it has one.
func named(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

func texts[T interface{ String() string }](list []T) []string {
	all := make([]string, len(list))
	for i, v := range list {
		all[i] = v.String()
	}
	return all
}
