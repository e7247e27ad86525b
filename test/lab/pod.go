// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
)

// Pod is a network namespace that the node's CNI plugins have plugged in.
type Pod struct {
	*Host
	Node        *Node
	Namespace   string
	UID         string
	ContainerID string
	// MAC is that of the pod's eth0.
	MAC net.HardwareAddr
	// Result is what ADD returned.
	Result      *current.Result
	Labels      map[string]string
	Annotations map[string]string
	// Args are pairs of CNI_ARGS beside those that Kubernetes' runtimes give.
	Args [][2]string

	ports  []PortMapping
	config string
}

// PodSpec says what a pod is to be.
type PodSpec struct {
	Namespace, Name string // an empty namespace is the lab's own
	Labels          map[string]string
	Annotations     map[string]string
	Ports           []PortMapping
	// Config is the network configuration in place of the one that the agent installs.
	Config string
}

// defaultNamespace is where pods are that name none.
const defaultNamespace = "lab"

// PortMapping is one hostPort.
type PortMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
}

// pluginDirs are where a node looks for plugins that are not Coelan's.
var pluginDirs = []string{"/usr/lib/cni", "/opt/cni/bin"}

// AddPod makes a pod of that name on the node and plugs it in.
func (n *Node) AddPod(ctx context.Context, name string, ports ...PortMapping) (*Pod, error) {
	return n.AddPodAs(ctx, PodSpec{Name: name, Ports: ports})
}

// AddPodAs makes a pod on the node and plugs it in.
func (n *Node) AddPodAs(ctx context.Context, spec PodSpec) (*Pod, error) {
	p, err := n.NewPodAs(spec)
	if err != nil {
		return nil, err
	}
	if err := p.Add(ctx); err != nil {
		p.End()
		return nil, err
	}
	return p, nil
}

// NewPod makes a pod's namespace and plugs nothing in.
func (n *Node) NewPod(name string, ports ...PortMapping) (*Pod, error) {
	return n.NewPodAs(PodSpec{Name: name, Ports: ports})
}

// NewPodAs is NewPod for all that can be said of a pod.
func (n *Node) NewPodAs(spec PodSpec) (*Pod, error) {
	h, err := newHost(spec.Name, nil)
	if err != nil {
		return nil, err
	}
	id := randomID()
	p := &Pod{
		Host: h, Node: n, Namespace: orElse(spec.Namespace, defaultNamespace), UID: "uid-" + id[:8], ContainerID: id,
		Labels: spec.Labels, Annotations: spec.Annotations, ports: spec.Ports, config: spec.Config,
	}
	n.adopt(p)
	n.lab.API.setPod(p)
	return p, nil
}

// adopt has the pod end with the node.
func (n *Node) adopt(p *Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[p] = struct{}{}
}

// Add calls ADD for the pod, and takes its addresses from the result.
func (p *Pod) Add(ctx context.Context) error {
	network, err := p.network()
	if err != nil {
		return err
	}
	result, err := p.Node.CNI().AddNetworkList(ctx, network, p.Runtime())
	if err != nil {
		return fmt.Errorf("pod %s: ADD: %w", p.Name, err)
	}
	if p.Result, err = current.GetResult(result); err != nil {
		return err
	}
	p.Addresses = nil
	for _, ip := range p.Result.IPs {
		addr, _ := netip.AddrFromSlice(ip.Address.IP)
		bits, _ := ip.Address.Mask.Size()
		p.Addresses = append(p.Addresses, netip.PrefixFrom(addr.Unmap(), bits))
	}
	for _, i := range p.Result.Interfaces {
		if i.Sandbox != "" && i.Name == "eth0" {
			p.MAC, err = net.ParseMAC(i.Mac)
		}
	}
	return err
}

// On are the addresses of one of the pod's interfaces. Those of a pod in a private Router are not
// the Addresses by which the runtime knows it.
func (p *Pod) On(ifName string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	err := p.withLink(ifName, func(l netlink.Link) error {
		addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		for _, a := range addrs {
			ip, _ := netip.AddrFromSlice(a.IP)
			bits, _ := a.Mask.Size()
			if ip = ip.Unmap(); !ip.IsLinkLocalUnicast() {
				list = append(list, netip.PrefixFrom(ip, bits))
			}
		}
		return err
	})
	slices.SortFunc(list, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return list, err
}

// Own is the address of a family of one of the pod's interfaces; invalid if it has none.
func (p *Pod) Own(ifName string, f Family) netip.Addr {
	list, _ := p.On(ifName) // an interface that is not there has no address
	for _, a := range list {
		if FamilyOf(a.Addr()) == f {
			return a.Addr()
		}
	}
	return netip.Addr{}
}

// Label publishes the pod with other labels.
func (p *Pod) Label(labels map[string]string) error {
	p.Labels = labels
	return alter(p.Node.lab.API, pods, objectKey(p.Namespace, p.Name), func(o *corev1.Pod) { o.Labels = labels })
}

// Del calls DEL for the pod. The namespace stays.
func (p *Pod) Del(ctx context.Context) error {
	network, err := p.network()
	if err != nil {
		return err
	}
	if err := p.Node.CNI().DelNetworkList(ctx, network, p.Runtime()); err != nil {
		return fmt.Errorf("pod %s: DEL: %w", p.Name, err)
	}
	return nil
}

// Check calls CHECK for the pod.
func (p *Pod) Check(ctx context.Context) error {
	network, err := p.network()
	if err != nil {
		return err
	}
	if err := p.Node.CNI().CheckNetworkList(ctx, network, p.Runtime()); err != nil {
		return fmt.Errorf("pod %s: CHECK: %w", p.Name, err)
	}
	return nil
}

// Delete unplugs the pod and ends its namespace.
func (p *Pod) Delete(ctx context.Context) error {
	defer p.End()
	defer p.Node.lab.API.remove(pods, objectKey(p.Namespace, p.Name))
	return p.Del(ctx)
}

// Restart does what a node does for a pod after its sandbox has ended, such as by a reboot: DEL for
// the old one, ADD for another.
func (p *Pod) Restart(ctx context.Context) error {
	p.End()
	if err := p.Del(ctx); err != nil {
		return err
	}
	h, err := newHost(p.Name, nil)
	if err != nil {
		return err
	}
	p.Host, p.ContainerID = h, randomID()
	p.Node.adopt(p)
	return p.Add(ctx)
}

// End ends the pod's namespace without unplugging it.
func (p *Pod) End() {
	p.Node.mu.Lock()
	delete(p.Node.pods, p)
	p.Node.mu.Unlock()
	p.close()
}

// Runtime is what the container runtime tells plugins about the pod.
func (p *Pod) Runtime() *libcni.RuntimeConf {
	r := &libcni.RuntimeConf{
		ContainerID: p.ContainerID, NetNS: p.Netns(), IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", p.Namespace}, {"K8S_POD_NAME", p.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.ContainerID}, {"K8S_POD_UID", p.UID},
		},
	}
	r.Args = append(r.Args, p.Args...)
	if len(p.ports) > 0 {
		r.CapabilityArgs = map[string]any{"portMappings": p.ports}
	}
	return r
}

// network is the configuration that the pod is plugged in by.
func (p *Pod) network() (*libcni.NetworkConfigList, error) {
	if p.config == "" {
		return p.Node.Network()
	}
	var keys map[string]any
	if err := json.Unmarshal([]byte(p.config), &keys); err != nil {
		return nil, fmt.Errorf("pod %s: network configuration: %w", p.Name, err)
	}
	keys["socket"] = p.Node.Config().CNI.Socket
	whole := map[string]any{"name": keys["name"], "plugins": []any{keys}}
	if v, ok := keys["cniVersion"]; ok { // without one it is 0.1.0
		whole["cniVersion"] = v
	}
	list, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	conf, err := libcni.NetworkConfFromBytes(list)
	if err != nil {
		return nil, fmt.Errorf("pod %s: network configuration: %w", p.Name, err)
	}
	return conf, nil
}

// Network is the configuration that the agent installed, in the version that
// Debian's containerd reads: newer runtimes choose from cniVersions, but Debian's
// portmap plugin does not know all of these.
func (n *Node) Network() (*libcni.NetworkConfigList, error) {
	files, err := filepath.Glob(filepath.Join(n.confDir(), "*.conflist"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("node %s: no CNI configuration in %s", n.Name, n.confDir())
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return nil, err
	}
	var list map[string]any
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", files[0], err)
	}
	delete(list, "cniVersions")
	if text, err = json.Marshal(list); err != nil {
		return nil, err
	}
	return libcni.NetworkConfFromBytes(text)
}

// CNI runs plugins on the node.
func (n *Node) CNI() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(append([]string{n.binDir()}, pluginDirs...),
		filepath.Join(n.dir, "cache"), &nodeExec{node: n})
}

func randomID() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
