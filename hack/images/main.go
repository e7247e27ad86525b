// SPDX-License-Identifier: Apache-2.0

// Images writes the archive of Coelan's image: the agent, the CNI plugin that it installs, the
// controller, and the command line; or that of OVN, of Debian's packages.
//
//	images -tag coelan.io/coelan:v0.1.0 -bin bin -o bin/images/coelan.tar
//	images -ovn -tag coelan.io/ovn:v0.1.0 -o bin/images/ovn.tar
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"coelan.io/coelan/internal/image"
)

func main() {
	tag := flag.String("tag", "", "the image's name")
	bin := flag.String("bin", "bin", "the folder of the static binaries")
	out := flag.String("o", "", "the archive to write")
	withOVN := flag.Bool("ovn", false, "write the image of OVN")
	flag.Parse()
	var err error
	if *withOVN {
		err = writeOVN(context.Background(), *tag, *out)
	} else {
		err = coelan(*tag, *bin).Write(*out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
	fmt.Println(*out, *tag)
}

func coelan(tag, bin string) image.Image {
	i := image.Image{
		Tag:        tag,
		Entrypoint: []string{"/usr/bin/coelan-agent"},
		Env:        []string{"PATH=/usr/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "Coelan",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	for _, name := range []string{"coelan-agent", "coelan-controller", "coelan-watcher", "coelan-cni", "coelan"} {
		i.Files = append(i.Files, image.File{Path: "/usr/bin/" + name, Source: filepath.Join(bin, name)})
	}
	return i
}
