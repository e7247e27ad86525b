// SPDX-License-Identifier: Apache-2.0

// Package kuryr reads the custom resources in which Kuryr-Kubernetes has noted what it made of
// pods, namespaces and Services in OpenStack: KuryrPorts, KuryrNetworks and KuryrLoadBalancers. It
// does no I/O.
package kuryr

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/intent"
)

// The group, the version and the resources of Kuryr's objects, as paths have them.
const (
	Group         = "openstack.org"
	Version       = "v1"
	Ports         = "kuryrports"
	Networks      = "kuryrnetworks"
	LoadBalancers = "kuryrloadbalancers"
)

// DeviceOwner is what Kuryr writes into the device_owner of its ports.
const DeviceOwner = "compute:kuryr"

// FloatingIPDescription is what Kuryr writes into the description of a floating IP that it makes.
const FloatingIPDescription = "kuryr_lb"

// Port is what a KuryrPort says of an interface of a pod.
type Port struct {
	Namespace, Name, PodUID string
	Node                    string
	ID                      string // of the port in Neutron
	NetworkID               string
	MAC                     intent.MAC
	Addresses               []netip.Addr
	// Unusable says why no interface of Coelan's can be the port's; empty: one can.
	Unusable string
}

// Network is what a KuryrNetwork says of a namespace.
type Network struct {
	Namespace                   string
	NetworkID, SubnetID, Router string
	CIDR                        netip.Prefix
}

// LoadBalancer is what a KuryrLoadBalancer says of the Service of the same namespace and name.
type LoadBalancer struct {
	Namespace, Name string
	// FloatingIP is the id in Neutron of the one that leads to it, and Address its address.
	FloatingIP string
	Address    netip.Addr
	// Users says that Kuryr has not made the floating IP, but found one that the Service asks for.
	Users bool
}

// metadata is that of an object of Kubernetes.
type metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// versioned is an object as OpenStack's library oslo.versionedobjects writes it.
type versioned[T any] struct {
	Name string `json:"versioned_object.name"`
	Data T      `json:"versioned_object.data"`
}

// objects is a list of them.
type objects[T any] struct {
	Objects []versioned[T] `json:"objects"`
}

// vif is the interface of a machine, as OpenStack's library os-vif describes it.
type vif struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Network versioned[struct {
		ID      string `json:"id"`
		Subnets versioned[objects[struct {
			IPs versioned[objects[struct {
				Address string `json:"address"`
			}]] `json:"ips"`
		}]] `json:"subnets"`
	}] `json:"network"`
}

// plugged are the kinds of interfaces on a bridge of the node. Those of nodes that are machines of
// OpenStack are parts of the machine's own port.
var plugged = []string{"VIFOpenVSwitch", "VIFBridge", "VIFGeneric"}

// ReadPort reads the pod's first interface in a KuryrPort, as JSON; false: it has none yet.
func ReadPort(object []byte) (p Port, ok bool, err error) {
	var o struct {
		Metadata metadata `json:"metadata"`
		Spec     struct {
			PodUID      string `json:"podUid"`
			PodNodeName string `json:"podNodeName"`
		} `json:"spec"`
		Status struct {
			VIFs map[string]struct {
				Default bool           `json:"default"`
				VIF     versioned[vif] `json:"vif"`
			} `json:"vifs"`
		} `json:"status"`
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return p, false, fmt.Errorf("KuryrPort: %w", err)
	}
	p = Port{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, PodUID: o.Spec.PodUID, Node: o.Spec.PodNodeName}
	for _, name := range slices.Sorted(maps.Keys(o.Status.VIFs)) {
		if v := o.Status.VIFs[name]; v.Default {
			if err := p.read(v.VIF); err != nil {
				return p, false, fmt.Errorf("%s: interface %s: %w", p, name, err)
			}
			return p, true, nil
		}
	}
	return p, false, nil
}

func (p *Port) read(v versioned[vif]) error {
	p.ID, p.NetworkID = v.Data.ID, v.Data.Network.Data.ID
	if p.ID == "" || p.NetworkID == "" || p.PodUID == "" {
		return fmt.Errorf("the pod %q, the port %q and the network %q have to be named", p.PodUID, p.ID, p.NetworkID)
	}
	var err error
	if p.MAC, err = intent.ParseMAC(v.Data.Address); err != nil {
		return err
	}
	for _, subnet := range v.Data.Network.Data.Subnets.Data.Objects {
		for _, ip := range subnet.Data.IPs.Data.Objects {
			a, err := netip.ParseAddr(ip.Data.Address)
			if err != nil {
				return err
			}
			p.Addresses = append(p.Addresses, a)
		}
	}
	if len(p.Addresses) == 0 {
		return fmt.Errorf("the port %s has no address", p.ID)
	}
	if !slices.Contains(plugged, v.Name) {
		p.Unusable = fmt.Sprintf("its interface is a %s, which is part of another port", v.Name)
	}
	return nil
}

// String is what people call it.
func (p Port) String() string { return "KuryrPort " + p.Namespace + "/" + p.Name }

// ReadNetwork reads a KuryrNetwork, as JSON; false: Kuryr has not made the network yet.
func ReadNetwork(object []byte) (n Network, ok bool, err error) {
	var o struct {
		Metadata metadata `json:"metadata"`
		Status   struct {
			NetID      string `json:"netId"`
			SubnetID   string `json:"subnetId"`
			SubnetCIDR string `json:"subnetCIDR"`
			RouterID   string `json:"routerId"`
		} `json:"status"`
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return n, false, fmt.Errorf("KuryrNetwork: %w", err)
	}
	n = Network{
		Namespace: o.Metadata.Namespace, NetworkID: o.Status.NetID, SubnetID: o.Status.SubnetID,
		Router: o.Status.RouterID,
	}
	if n.NetworkID == "" || n.SubnetID == "" || o.Status.SubnetCIDR == "" {
		return n, false, nil
	}
	if n.CIDR, err = netip.ParsePrefix(o.Status.SubnetCIDR); err != nil {
		return n, false, fmt.Errorf("%s: %w", n, err)
	}
	return n, true, nil
}

// String is what people call it: a namespace has one at most.
func (n Network) String() string { return "KuryrNetwork " + n.Namespace }

// ReadLoadBalancer reads a KuryrLoadBalancer, as JSON; false: no floating IP leads to it.
func ReadLoadBalancer(object []byte) (l LoadBalancer, ok bool, err error) {
	var o struct {
		Metadata metadata `json:"metadata"`
		Status   struct {
			Public *struct {
				ID          string `json:"ip_id"`
				Address     string `json:"ip_addr"`
				AllocMethod string `json:"alloc_method"`
			} `json:"service_pub_ip_info"`
		} `json:"status"`
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return l, false, fmt.Errorf("KuryrLoadBalancer: %w", err)
	}
	l = LoadBalancer{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}
	public := o.Status.Public
	if public == nil || public.ID == "" && public.Address == "" {
		return l, false, nil
	}
	if public.ID == "" {
		return l, false, fmt.Errorf("%s: the id of the floating IP %s is missing", l, public.Address)
	}
	if l.Address, err = netip.ParseAddr(public.Address); err != nil {
		return l, false, fmt.Errorf("%s: %w", l, err)
	}
	l.FloatingIP, l.Users = public.ID, public.AllocMethod != fromPool
	return l, true, nil
}

// fromPool is the method of allocation of floating IPs that Kuryr has made.
const fromPool = "pool"

// String is what people call it.
func (l LoadBalancer) String() string { return "KuryrLoadBalancer " + l.Namespace + "/" + l.Name }
