// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"cmp"
	"context"
	"path/filepath"
	"strings"
)

// module is a Go module below build/ with commands that the sandbox runs.
type module struct {
	name, version string
	folder        string // of the module below build/ if it is not the name
	ldflags       string
	packages      []string
	output        string // the binary's name if it is not that of the package's directory
	extra         Extra  // what needs it, if not every sandbox does
}

var modules = []module{
	{
		name: "kubernetes", version: KubernetesVersion,
		ldflags: kubernetesVersionFlags(KubernetesVersion),
		packages: []string{
			"k8s.io/kubernetes/cmd/kube-apiserver",
			"k8s.io/kubernetes/cmd/kube-controller-manager",
			"k8s.io/kubernetes/cmd/kube-scheduler",
			"k8s.io/kubernetes/cmd/kubelet",
			"k8s.io/kubernetes/cmd/kubectl",
			"k8s.io/kubernetes/test/images/agnhost",
		},
	},
	{
		name: "kube-proxy", version: KubernetesVersion, folder: "kubernetes", extra: KubeProxy,
		ldflags:  kubernetesVersionFlags(KubernetesVersion),
		packages: []string{"k8s.io/kubernetes/cmd/kube-proxy"}, output: "kube-proxy",
	},
	{name: "etcd", version: EtcdVersion, packages: []string{"go.etcd.io/etcd/server/v3"}, output: "etcd"},
	{name: "coredns", version: CoreDNSVersion, packages: []string{"."}, output: "coredns"},
	{name: "plugins", version: PluginsVersion, packages: []string{
		pluginsModule + "/plugins/main/loopback", pluginsModule + "/plugins/main/bridge",
		pluginsModule + "/plugins/main/macvlan", pluginsModule + "/plugins/main/host-device",
		pluginsModule + "/plugins/ipam/host-local", pluginsModule + "/plugins/ipam/static",
		pluginsModule + "/plugins/meta/portmap",
	}},
	{name: "multus", version: MultusVersion, packages: multusPackages, extra: Multus},
}

const pluginsModule = "github.com/containernetworking/plugins"

// PluginDir has the reference CNI plugins. Debian 12's do not know CNI 1.1, which Multus speaks
// with all plugins of a list that offers it.
func (c Cache) PluginDir() string { return filepath.Join(c.Dir, versioned("plugins", PluginsVersion)) }

// kubernetesVersionFlags make the binaries report the version; without it they call themselves
// v0.0.0 and kubectl refuses to talk to the server.
func kubernetesVersionFlags(version string) string {
	numbers := strings.Split(strings.TrimPrefix(version, "v"), ".")
	const component = "-X k8s.io/component-base/version."
	return strings.Join([]string{
		"", component + "gitVersion=" + version, component + "gitMajor=" + numbers[0],
		component + "gitMinor=" + numbers[1],
		"-X k8s.io/client-go/pkg/version.gitVersion=" + version,
	}, " ")
}

func (c Cache) build(ctx context.Context, m module) error {
	return c.make(versioned(m.name, m.version), "build "+m.name+" "+m.version, func(dir string) error {
		source, err := c.source()
		if err != nil {
			return err
		}
		output := dir + "/"
		if m.output != "" {
			output = filepath.Join(dir, m.output)
		}
		args := append([]string{
			"go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w" + m.ldflags, "-o", output,
		}, m.packages...)
		folder := cmp.Or(m.folder, m.name)
		return Run(ctx, filepath.Join(source, "build", folder), []string{"CGO_ENABLED=0"}, args...)
	})
}

// Binary is the path of a program: kubelet, kubectl, etcd, coredns, agnhost and so on.
func (c Cache) Binary(name string) string {
	for _, m := range modules {
		if m.output == name {
			return filepath.Join(c.Dir, versioned(m.name, m.version), name)
		}
	}
	return filepath.Join(c.Dir, versioned("kubernetes", KubernetesVersion), name)
}
