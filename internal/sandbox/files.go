// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"embed"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"coelan.io/coelan/internal/sandbox/artifact"
	"coelan.io/coelan/internal/sandbox/pki"
)

//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"join":  strings.Join,
	"lines": func(list []string) string { return strings.Join(list, "\n") },
}).ParseFS(templateFiles, "templates/*"))

// values are what the templates use.
type values struct {
	Node         string
	ControlPlane bool
	Any          string // the unspecified address
	Pause        string
	ClusterDNS   string
	DNSAddresses []string
	DNSFamilies  []string
	CoreDNSImage string
	PodNets      []string
	NameServers  []string
	Outside      []string
	OutsideName  string
	BalancerName string   // of the load balancer before the API servers
	Balancers    []string // its addresses; none if there is none
	Hosts        []hostLine
	KubeDir      string
	PKIDir       string
	Containerd   string
	ProxyMode    ProxyMode
}

type hostLine struct{ Address, Name string }

func (s *Sandbox) values(machine string) values {
	v := values{
		Node: machine, ControlPlane: s.isControlPlane(machine),
		Any:          "0.0.0.0",
		Pause:        artifact.PauseImage,
		ClusterDNS:   of(s.Family, dnsServices)[0].String(),
		DNSAddresses: texts(of(s.Family, dnsServices)),
		DNSFamilies:  of(s.Family, families[string]{"IPv4", "IPv6"}),
		CoreDNSImage: artifact.CoreDNSImage,
		PodNets:      texts(of(s.Family, podNets)),
		NameServers:  texts(of(s.Family, host(fabricHost))),
		Outside:      texts(of(s.Family, outside)),
		OutsideName:  outsideName,
		KubeDir:      kubeDir, PKIDir: pkiDir, Containerd: containerdSock,
		ProxyMode: s.ProxyMode,
	}
	v.BalancerName = balancerName
	for _, b := range s.balancers() {
		v.Balancers = append(v.Balancers, b.Addr().String())
	}
	if s.Family == IPv6 {
		v.Any = "::"
	}
	for _, node := range s.Nodes() {
		for _, a := range s.addresses(node) {
			v.Hosts = append(v.Hosts, hostLine{a.String(), node})
		}
	}
	return v
}

func texts[T fmt.Stringer](list []T) []string {
	var out []string
	for _, v := range list {
		out = append(out, v.String())
	}
	return out
}

// render is a template's text for the machine.
func (s *Sandbox) render(name, machine string) (string, error) {
	var b strings.Builder
	err := templates.ExecuteTemplate(&b, name, s.values(machine))
	return b.String(), err
}

// writeFiles puts a machine's configuration files and credentials on its disk.
func (s *Sandbox) writeFiles(machine string) error {
	rendered := map[string]string{"/etc/hosts": "hosts", "/etc/resolv.conf": "resolv.conf"}
	files := map[string]string{"/etc/hostname": machine + "\n"}
	if machine == FabricName {
		rendered[corefile] = "Corefile"
	} else {
		rendered[containerdFile] = "containerd.toml"
		rendered[kubeDir+"/kubelet.yaml"] = "kubelet.yaml"
		rendered[kubeDir+"/kube-proxy.yaml"] = "kube-proxy.yaml"
		if err := s.credentials(machine, files); err != nil {
			return err
		}
		if machine == ControlPlaneName && s.Backend == NeutronBackend {
			files[neutronFile] = s.neutron().Configuration()
			files[octaviaFile] = s.octavia().Configuration()
		}
	}
	for path, name := range rendered {
		text, err := s.render(name, machine)
		if err != nil {
			return err
		}
		files[path] = text
	}
	for path, text := range files {
		if err := s.writeFile(machine, path, text); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sandbox) writeFile(machine, path, text string) error {
	path = filepath.Join(s.machineDir(machine), path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if strings.HasSuffix(path, ".key") || strings.HasSuffix(path, ".conf") && strings.Contains(path, kubeDir) {
		mode = 0o600
	}
	// A link, as /etc/resolv.conf often is, must not be followed off the machine's disk.
	if err := os.WriteFile(path+".new", []byte(text), mode); err != nil {
		return err
	}
	return os.Rename(path+".new", path) //nolint:forbidigo // written anew at each start: many files, which need not be on the disk
}

// credentials adds a node's keys, certificates and kubeconfigs to files.
func (s *Sandbox) credentials(node string, files map[string]string) error {
	store := pki.Store{Dir: filepath.Join(s.dir, "pki")}
	ca, err := store.Authority("ca")
	if err != nil {
		return err
	}
	files[pkiDir+"/ca.crt"] = string(ca.Cert)
	put := func(name string, subject pki.Subject) error {
		pair, err := ca.Issue(node+"/"+name, subject)
		files[pkiDir+"/"+name+".crt"], files[pkiDir+"/"+name+".key"] = string(pair.Cert), string(pair.Key)
		return err
	}
	config := func(name, server string, subject pki.Subject) error {
		pair, err := ca.Issue(node+"/"+name+".conf", subject)
		files[kubeDir+"/"+name+".conf"] = kubeconfig("https://"+server, "", ca.Cert, pair)
		return err
	}
	if err := put("kubelet", pki.Subject{
		Name: "system:node:" + node, Organization: "system:nodes", Hosts: append(texts(s.addresses(node)), node),
	}); err != nil {
		return err
	}
	if err := config("kubelet", s.apiServer(),
		pki.Subject{Name: "system:node:" + node, Organization: "system:nodes"}); err != nil {
		return err
	}
	if err := config("kube-proxy", s.apiServer(), pki.Subject{Name: "system:kube-proxy"}); err != nil {
		return err
	}
	if !s.isControlPlane(node) {
		return nil
	}
	// As kubeadm does it, what runs beside an API server asks that one.
	own := func(name string, subject pki.Subject) error {
		return config(name, s.apiEndpoint(node).String(), subject)
	}
	return s.controlPlaneCredentials(node, store, ca, files, put, own)
}

func (s *Sandbox) controlPlaneCredentials(
	node string, store pki.Store, ca *pki.Authority, files map[string]string, put,
	config func(string, pki.Subject) error,
) error {
	const masters = "system:masters"
	hosts := append([]string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		"localhost", "127.0.0.1", node,
	}, append(texts(s.addresses(node)), texts(of(s.Family, firstServes))...)...)
	if s.balancers() != nil {
		hosts = append(hosts, balancerName)
		peer := pki.Subject{Name: "etcd-" + node, Hosts: append(texts(s.addresses(node)), node), Peer: true}
		if err := put("etcd-peer", peer); err != nil {
			return err
		}
	}
	if err := put("apiserver", pki.Subject{Name: apiServer, Hosts: hosts}); err != nil {
		return err
	}
	client := pki.Subject{Name: "kube-apiserver-kubelet-client", Organization: masters}
	if err := put("apiserver-kubelet-client", client); err != nil {
		return err
	}
	for name, subject := range map[string]pki.Subject{
		"admin":              {Name: "kubernetes-admin", Organization: masters},
		"controller-manager": {Name: "system:kube-controller-manager"},
		"scheduler":          {Name: "system:kube-scheduler"},
	} {
		if err := config(name, subject); err != nil {
			return err
		}
	}
	front, err := store.Authority("front-proxy-ca")
	if err != nil {
		return err
	}
	proxy, err := front.Issue("front-proxy-client", pki.Subject{Name: "front-proxy-client"})
	if err != nil {
		return err
	}
	tokens, err := store.KeyPair("sa")
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"ca.key": ca.Key, "sa.pub": tokens.Cert, "sa.key": tokens.Key, "front-proxy-ca.crt": front.Cert,
		"front-proxy-client.crt": proxy.Cert, "front-proxy-client.key": proxy.Key,
	} {
		files[pkiDir+"/"+name] = string(data)
	}
	return nil
}

// kubeconfig is a kubeconfig file with everything in it. A server name is needed where the server's
// certificate does not hold the address.
func kubeconfig(server, context string, ca []byte, client pki.Pair) string {
	if context == "" {
		context = "sandbox"
	}
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: %[1]s
clusters:
- name: %[1]s
  cluster: {server: %[2]q, certificate-authority-data: %[3]s}
users:
- name: %[1]s
  user: {client-certificate-data: %[4]s, client-key-data: %[5]s}
contexts:
- name: %[1]s
  context: {cluster: %[1]s, user: %[1]s}
`, context, server, b64(ca), b64(client.Cert), b64(client.Key))
}
