// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// The Network and the Router that every pod joins unless something else is asked for.
const (
	DefaultNetwork = "default"
	DefaultRouter  = "default"
)

// DefaultRouteTarget is what the Router default imports and exports. A Router that does
// both as well shares the address space of the cluster: its pods and those of the default
// network reach each other.
const DefaultRouteTarget = "64512:1"

// Labels, annotations and finalizers.
const (
	// LabelIsolated on a Namespace, with the value "true", keeps its pods from those of other
	// namespaces (mapping by namespace).
	LabelIsolated = "coelan.io/isolated"
	// LabelManagedBy is on every object that Coelan makes by itself, with the value
	// ManagedByController or ManagedByAgent.
	LabelManagedBy = "coelan.io/managed-by"
	// LabelNamespace and LabelNode say for which namespace and node a Network or Router was made.
	LabelNamespace = "coelan.io/namespace"
	LabelNode      = "coelan.io/node"
	// LabelNetwork is the Network of an AddressBlock or Port.
	LabelNetwork = "coelan.io/network"
	// LabelPodPort is on Ports of pods that have addresses from a block of their node and a MAC
	// that follows from them: no other node needs to know them. Agents watch all Ports without it.
	LabelPodPort = "coelan.io/pod-port"
	// AnnotationELAN and AnnotationVPN are the names that the COE integration gives a Network and a
	// Router: node-ip:namespace and namespace.
	AnnotationELAN = "coelan.io/elan-instance"
	AnnotationVPN  = "coelan.io/vpn-instance"
	// AnnotationLoadBalancerPool on a Service of type LoadBalancer is the name of the
	// LoadBalancerPool that its addresses are of; left out: one that assigns by itself.
	AnnotationLoadBalancerPool = "coelan.io/load-balancer-pool"
	// AnnotationLoadBalancerNetwork on a Service of type LoadBalancer is the name of the external
	// Network that its addresses are of, in place of a LoadBalancerPool.
	AnnotationLoadBalancerNetwork = "coelan.io/load-balancer-network"
	// AnnotationLoadBalancerIPs on a Service of type LoadBalancer are the addresses, of pools or
	// of the external Network, that it wants, at most one of each family, with commas between them.
	AnnotationLoadBalancerIPs = "coelan.io/load-balancer-ips"
	// AnnotationSecurityGroups on a pod are the names of SecurityGroups of its namespace, with
	// commas between them, that all of its interfaces are of.
	AnnotationSecurityGroups = "coelan.io/security-groups"
	// AnnotationMTU on a node is the MTU of its pods. Agents write it, each on its own node.
	AnnotationMTU = "coelan.io/mtu"
	// AnnotationPhysicalNetworks on a node are the names of the physical networks that it is
	// connected to, sorted and with commas between them. Agents write it, each on its own node.
	AnnotationPhysicalNetworks = "coelan.io/physical-networks"
	// AnnotationNetworkConfig on a node says which NodeNetworkConfig it runs with, since when, and
	// what it refuses, as JSON. Agents write it, each on its own node.
	AnnotationNetworkConfig = "coelan.io/network-config"
	// AnnotationNeutronPort on a node is the UUID of the port of OpenStack's Neutron by which the
	// node's kernel reaches pods. The controller writes it.
	AnnotationNeutronPort = "coelan.io/neutron-port"
	// AnnotationNeutronVLAN on a node that is a machine of OpenStack is the VLAN in which that port
	// is on the machine's trunk. The controller writes it.
	AnnotationNeutronVLAN = "coelan.io/neutron-vlan"
	// AnnotationTrunkPort on a node says, with the backend neutron, that it is a machine of
	// OpenStack: it is the UUID of the port that the machine is plugged by, the parent of a trunk.
	AnnotationTrunkPort = "coelan.io/trunk-port"
	// AnnotationAuditDenied on a namespace has agents log what policies deny of its pods and Ports,
	// if it is "true".
	AnnotationAuditDenied = "coelan.io/audit-denied"
	// AnnotationLogicalSwitch on a Network is, with the backend ovn, the name of a Logical_Switch
	// that another system has made. Ports of the Network are on it.
	AnnotationLogicalSwitch = "coelan.io/logical-switch"
	// AnnotationNeutronNetwork on a Network is, with the backend neutron, the UUID of a network
	// that is not Coelan's, or a tag of one in the Network's project. Ports of the Network are on
	// it.
	AnnotationNeutronNetwork = "coelan.io/neutron-network"
	// AnnotationKuryrNetwork on a Network is, with the backend neutron, the namespace of a
	// KuryrNetwork. The network that Kuryr has made becomes the Network's.
	AnnotationKuryrNetwork = "coelan.io/kuryr-network"
	// KuryrProjectAnnotation on a Namespace is, with the backend neutron, the id of the project of
	// OpenStack that what is made for it is in, if the controller's settings let it. On a Network
	// it is the project that its network is in, or is to be made in; the controller writes it.
	KuryrProjectAnnotation = "openstack.org/kuryr-project"
	// FinalizerInUse keeps a Network, Router or LoadBalancerPool until nothing uses it.
	FinalizerInUse = "coelan.io/in-use"

	ManagedByController = "coelan-controller"
	ManagedByAgent      = "coelan-agent"
)

// AnyNode, in place of the node's name in spec.gateway of an AddressBlock, says that any of the
// gateway's nodes may be active for the address.
const AnyNode = "*"

// LoadBalancerClass is that of Services that always get their addresses from LoadBalancerPools.
// Those of Services without a class do so if there is a pool.
const LoadBalancerClass = "coelan.io/pool"

// OctaviaClass is that of Services that get a load balancer of OpenStack's Octavia, with the
// backend neutron.
const OctaviaClass = "coelan.io/octavia"

// Condition types and reasons.
const (
	// ConditionReady says that an object takes effect. Its reason and message say why not.
	ConditionReady = "Ready"
	// ConditionAccepted of a policy says that all of it is valid. Its message names what is not.
	ConditionAccepted = "Accepted"
	// ConditionProgrammed says that the switches of all nodes that an object is for do what it
	// says, as it is now. It is false while some of them have not come to it, or refuse it: these
	// nodes leave the object out.
	ConditionProgrammed = "Programmed"
	// ConditionDeletionBlocked says what keeps an object that is being deleted.
	ConditionDeletionBlocked = "DeletionBlocked"
	// ConditionGatewayReady of a Router with a gateway says whether nodes lead out of the cluster
	// by it. Its reason and message say which do not, and why.
	ConditionGatewayReady = "GatewayReady"
	// ConditionGranted of an AddressBlock of a single address inside a block of another node:
	// whether that node has given the address away.
	ConditionGranted = "Granted"
	// ConditionQuotaPressure of the Network default, with the backend neutron, is there and true
	// while a project of OpenStack has used nearly all that a quota lets it have. Nothing is
	// refused yet.
	ConditionQuotaPressure = "QuotaPressure"

	ReasonReady           = "Ready"
	ReasonRouterNotFound  = "RouterNotFound"
	ReasonSubnetOverlaps  = "SubnetOverlaps"
	ReasonVNITaken        = "VNITaken"
	ReasonVLANTaken       = "VLANTaken"
	ReasonIDsExhausted    = "IDsExhausted"
	ReasonInvalid         = "Invalid"
	ReasonInUse           = "InUse"
	ReasonNetworkNotFound = "NetworkNotFound"
	ReasonNetworkNotReady = "NetworkNotReady"
	ReasonNotAllowed      = "NamespaceNotAllowed"
	ReasonAddressOutside  = "AddressOutside"
	ReasonAddressTaken    = "AddressTaken"
	ReasonMACTaken        = "MACTaken"
	ReasonFixedAddress    = "FixedAddressNotAllowed"
	ReasonFixedMAC        = "FixedMACNotAllowed"
	ReasonExhausted       = "AddressesExhausted"
	ReasonBoundElsewhere  = "BoundElsewhere"
	ReasonGranted         = "Granted"
	ReasonNotBound        = "NotBound"
	ReasonBound           = "Bound"
	ReasonRefused         = "RefusedBySwitch"
	ReasonNoDHCP          = "NetworkWithoutDHCP"
	ReasonNoLease         = "NoDHCPLease"
	// ReasonNotSupported says that a central system, such as OVN, does not do all that is asked
	// for, or cannot be programmed.
	ReasonNotSupported = "NotSupported"

	// Reasons of FloatingIPs. One without a Port is Unassociated, as in OpenStack.
	ReasonNotExternal    = "NetworkNotExternal"
	ReasonUnassociated   = "Unassociated"
	ReasonPortTaken      = "PortTaken"
	ReasonPortOnPhysical = "PortOnPhysicalNetwork"
	ReasonServiceTaken   = "ServiceTaken"
	ReasonNoClusterIP    = "ServiceWithoutClusterIP"
	// Reasons of Services that FloatingIPs are made for.
	ReasonNameTaken     = "NameTaken"
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonQuotaNearlyExceeded says that what comes beyond a quota of OpenStack will be refused.
	ReasonQuotaNearlyExceeded = "QuotaNearlyExceeded"

	// Reasons of Routers' gateways.
	ReasonRouteConflict     = "RouteConflict"
	ReasonNoConnectedNode   = "NoConnectedNode"
	ReasonNodesNotConnected = "NodesNotConnected"

	// ReasonPodsTaken of an Egress says that an older one has some of the pods that it selects.
	ReasonPodsTaken = "PodsTaken"

	// Reasons of NodeNetworkConfigs: an older one holds for some of its nodes, some nodes refuse
	// it, or it holds for no node.
	ReasonNodesTaken     = "NodesTaken"
	ReasonRefusedByNodes = "RefusedByNodes"
	ReasonNoNode         = "NoNode"
	// ReasonAddressNotOfNode of a Node says that a call with its token came from elsewhere.
	ReasonAddressNotOfNode = "AddressNotOfNode"

	ReasonAddressesOverlap  = "AddressesOverlap"
	ReasonPoolNotFound      = "PoolNotFound"
	ReasonPoolNotReady      = "PoolNotReady"
	ReasonInvalidAnnotation = "InvalidAnnotation"
	ReasonWrongFamily       = "WrongFamily"
	ReasonAddressAssigned   = "AddressAssigned"

	ReasonAccepted         = "Accepted"
	ReasonPartiallyInvalid = "PartiallyInvalid"
	ReasonProgrammed       = "Programmed"
	ReasonPending          = "Pending"
)
