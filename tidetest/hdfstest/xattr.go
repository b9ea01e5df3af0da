package hdfstest

// Flags of setXAttr.
const (
	xattrCreate  = 0x01
	xattrReplace = 0x02
)

// xattrSpaces are the namespaces of attributes, as they lead their names.
var xattrSpaces = []string{"user", "trusted", "security", "system", "raw"}

func xattrName(m message) string {
	return xattrSpaces[min(int(m.num("namespace")), len(xattrSpaces)-1)] + "." + m.str("name")
}

func (c *Cluster) setXAttr(cl call, _ message) error {
	n, err := c.existing(cl)
	if err != nil {
		return err
	}
	attr := cl.request.sub("xAttr")
	name, flags := xattrName(attr), cl.request.num("flag")
	switch _, there := n.xattrs[name]; {
	case there && flags&xattrReplace == 0:
		return refuse(ioException, "XAttr: %s already exists. The REPLACE flag must be specified.", attr.str("name"))
	case !there && flags&xattrCreate == 0:
		return refuse(ioException, "XAttr: %s does not exist. The CREATE flag must be specified.", attr.str("name"))
	}
	if n.xattrs == nil {
		n.xattrs = map[string][]byte{}
	}
	n.xattrs[name] = attr.raw("value")
	return nil
}

func (c *Cluster) getXAttrs(cl call, out message) error {
	n, err := c.existing(cl)
	if err != nil {
		return err
	}
	for _, asked := range cl.request.list("xAttrs") {
		value, there := n.xattrs[xattrName(asked)]
		if !there {
			return refuse(ioException, "At least one of the attributes provided was not found.")
		}
		out.add("xAttrs", hdfsMessage("XAttrProto").setNum("namespace", asked.num("namespace")).setStr("name", asked.str("name")).setRaw("value", value))
	}
	return nil
}
