// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"net/netip"
	"strings"

	"coelan.io/coelan/internal/sandbox/machine"
)

// controlPlane are the components that only the control plane's nodes have. Each API server asks
// the etcd of its node.
func (s *Sandbox) controlPlane(node string) []machine.Component {
	return []machine.Component{
		{
			Name: etcd, Command: s.etcdCommand(node), After: s.etcdAfter(),
			Ready: machine.Probe{URL: "http://127.0.0.1:2379/health"},
		},
		{
			Name: apiServer, Command: s.apiServerCommand(node), After: []string{etcd, ovsVswitchd},
			Ready: machine.Probe{URL: "https://127.0.0.1:6443/readyz"},
		},
		{
			Name: controllerManager, Command: s.controllerManagerCommand(), After: []string{apiServer},
			Ready: machine.Probe{URL: "https://127.0.0.1:10257/healthz"},
		},
		{
			Name: scheduler, After: []string{apiServer},
			Command: []string{
				s.cache.Binary(scheduler), "--kubeconfig=" + kubeDir + "/scheduler.conf",
				"--authentication-kubeconfig=" + kubeDir + "/scheduler.conf",
				"--authorization-kubeconfig=" + kubeDir + "/scheduler.conf",
				"--bind-address=127.0.0.1", s.leaderElect(), "--kube-api-qps=500", "--kube-api-burst=1000",
			},
			Ready: machine.Probe{URL: "https://127.0.0.1:10259/healthz"},
		},
	}
}

// etcdPeerPort is that of etcd for other members.
const etcdPeerPort = 2380

func (s *Sandbox) etcdCommand(node string) []string {
	args := []string{
		s.cache.Binary("etcd"), "--name=" + node, "--data-dir=/var/lib/etcd",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		// A node's power cut is the end of its processes; what they wrote stays in the kernel.
		"--unsafe-no-fsync", "--log-level=warn",
	}
	if s.ControlPlanes < maxControlPlanes {
		const peer = "http://127.0.0.1:2380"
		return append(args, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
			"--initial-cluster="+node+"="+peer)
	}
	var members []string
	for _, name := range s.ControlPlaneNames() {
		members = append(members, name+"="+s.etcdPeer(name))
	}
	return append(args,
		"--listen-peer-urls="+s.etcdPeer(node), "--initial-advertise-peer-urls="+s.etcdPeer(node),
		"--initial-cluster="+strings.Join(members, ","),
		"--peer-client-cert-auth=true", "--peer-trusted-ca-file="+pkiDir+"/ca.crt",
		"--peer-cert-file="+pkiDir+"/etcd-peer.crt", "--peer-key-file="+pkiDir+"/etcd-peer.key",
		// Three members share this machine with all else that runs on it.
		"--heartbeat-interval=250", "--election-timeout=2500",
	)
}

// etcdPeer is where a member is for the others.
func (s *Sandbox) etcdPeer(node string) string {
	return "https://" + netip.AddrPortFrom(s.addresses(node)[0], etcdPeerPort).String()
}

// etcdAfter is what a member needs that talks to others: the node's addresses.
func (s *Sandbox) etcdAfter() []string {
	if s.ControlPlanes < maxControlPlanes {
		return nil
	}
	return []string{ovsVswitchd}
}

// leaderElect is the flag of what only one of several does.
func (s *Sandbox) leaderElect() string {
	return fmt.Sprintf("--leader-elect=%t", s.ControlPlanes > 1)
}

func (s *Sandbox) apiServerCommand(node string) []string {
	any := "0.0.0.0"
	if s.Family != IPv4 {
		any = "::"
	}
	return []string{
		s.cache.Binary(apiServer),
		"--advertise-address=" + s.apiEndpoint(node).Addr().String(), "--bind-address=" + any,
		fmt.Sprintf("--secure-port=%d", apiPort),
		"--etcd-servers=http://127.0.0.1:2379",
		"--service-cluster-ip-range=" + joined(of(s.Family, serviceNets)),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--client-ca-file=" + pkiDir + "/ca.crt",
		"--tls-cert-file=" + pkiDir + "/apiserver.crt", "--tls-private-key-file=" + pkiDir + "/apiserver.key",
		"--kubelet-certificate-authority=" + pkiDir + "/ca.crt",
		"--kubelet-client-certificate=" + pkiDir + "/apiserver-kubelet-client.crt",
		"--kubelet-client-key=" + pkiDir + "/apiserver-kubelet-client.key",
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + pkiDir + "/sa.pub", "--service-account-signing-key-file=" + pkiDir + "/sa.key",
		"--requestheader-client-ca-file=" + pkiDir + "/front-proxy-ca.crt",
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + pkiDir + "/front-proxy-client.crt",
		"--proxy-client-key-file=" + pkiDir + "/front-proxy-client.key",
		"--profiling=false",
	}
}

func (s *Sandbox) controllerManagerCommand() []string {
	conf := kubeDir + "/controller-manager.conf"
	args := []string{
		s.cache.Binary(controllerManager),
		"--kubeconfig=" + conf, "--authentication-kubeconfig=" + conf, "--authorization-kubeconfig=" + conf,
		"--bind-address=127.0.0.1", s.leaderElect(), "--use-service-account-credentials=true",
		"--root-ca-file=" + pkiDir + "/ca.crt", "--service-account-private-key-file=" + pkiDir + "/sa.key",
		"--cluster-signing-cert-file=" + pkiDir + "/ca.crt", "--cluster-signing-key-file=" + pkiDir + "/ca.key",
		"--allocate-node-cidrs=true", "--cluster-cidr=" + joined(of(s.Family, podNets)),
		"--service-cluster-ip-range=" + joined(of(s.Family, serviceNets)),
		"--kube-api-qps=500", "--kube-api-burst=1000", "--concurrent-replicaset-syncs=20",
		// With the usual 50 s, an API server that is away for 30 s makes nodes NotReady, and
		// Services lose their endpoints: kubelets renew leases every 10 s, and watches wait for up
		// to a minute before they try again.
		"--node-monitor-grace-period=2m",
	}
	switch s.Family {
	case IPv4:
		return append(args, "--node-cidr-mask-size=24")
	case IPv6:
		return append(args, "--node-cidr-mask-size=64")
	}
	return append(args, "--node-cidr-mask-size-ipv4=24", "--node-cidr-mask-size-ipv6=64")
}
